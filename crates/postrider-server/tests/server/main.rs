//! The server over real sockets, on real databases.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod bad_input;
mod connections;
mod document;
mod events;
mod group_commit;
mod operations;
mod shutdown;
