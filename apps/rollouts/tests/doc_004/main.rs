//! Document 004, "HA-Compatible Webhook Delivery Design", line by line: against the real binary, in several processes, on
//! a real Postgres, with real receivers.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests may fail their test, and say why")]

mod courses;
mod crashes;
mod flows;
mod http;
mod matrix;
mod requirements;
mod support;
