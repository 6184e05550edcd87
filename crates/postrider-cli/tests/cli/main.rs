//! The real binary, run as people run it.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it, as the test itself may")]

mod configuration;
mod demo;
mod errors;
mod flows;
mod gate;
mod golden;
mod help;
mod offline;
mod prepared;
mod secrets;
mod support;
mod takeover;
