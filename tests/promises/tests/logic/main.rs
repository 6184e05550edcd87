//! What can be tried without killing anybody: the protocol of leases as a model, everything that reads foreign text, and
//! who may see what.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod lease;
mod lease_protocol;
mod tenants;
mod texts;
