//! The resources of the API over real HTTP, on a real database, with a real dispatcher and real receivers where it matters.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod deliveries;
mod endpoints;
mod flights;
mod keys;
mod once;
mod rotation;
mod stage;
mod stream;
mod tenants;

/// The same tests run on Postgres, in `resources_on_postgres`.
const ON_POSTGRES: bool = false;
