//! Receivers, names, clocks and clients that mean harm, against real processes.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod bytes;
mod clients;
mod clocks;
mod memory;
mod names;
mod receivers;
mod refusals;
mod stage;
