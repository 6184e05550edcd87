//! The resources of the API on Postgres: the same tests as on SQLite.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../resources/deliveries.rs"]
mod deliveries;
#[path = "../resources/endpoints.rs"]
mod endpoints;
#[path = "../resources/flights.rs"]
mod flights;
#[path = "../resources/keys.rs"]
mod keys;
#[path = "../resources/once.rs"]
mod once;
#[path = "../resources/rotation.rs"]
mod rotation;
#[path = "../resources/stage.rs"]
mod stage;
#[path = "../resources/stream.rs"]
mod stream;
#[path = "../resources/tenants.rs"]
mod tenants;

const ON_POSTGRES: bool = true;
