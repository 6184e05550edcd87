//! The real binary, run as people run it.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it, as the test itself may")]

mod asking;
mod client;
mod configuration;
mod crash;
mod demo;
mod doctor;
mod endpoints;
mod errors;
mod flows;
mod gate;
mod golden;
mod help;
mod offline;
mod prepared;
mod secret_keys;
mod secrets;
mod serve;
mod served;
mod support;
mod takeover;
