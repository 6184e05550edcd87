//! What goes on beside each other: lanes that trouble nobody else, claims that many race for, leases beside sends that
//! last, and secrets beside everything that is printed, answered and stored.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod commands;
mod lanes;
mod leaks;
mod lengths;
mod once;
mod rest;
mod routes;
mod stage;
