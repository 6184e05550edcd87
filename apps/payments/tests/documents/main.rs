//! The documents' criteria, one by one, on the real binary: real processes, real Postgres, a real EVM node, real receivers.
//! The README has a table of which test is for which.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod chain;
mod creation;
mod dispatch;
mod heartbeat;
mod legacy;
mod readme;
mod replicas;
mod runtimes;
mod support;
mod transitions;
