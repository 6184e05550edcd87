//! The dashboard over real HTTP, with a real dispatcher and real receivers where it matters: who is let in, what forms need,
//! whose things are shown, and that whatever others wrote is text.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod browser;
mod doors;
mod flows;
mod forms;
mod live;
mod pages;
#[path = "../resources/stage.rs"]
#[allow(dead_code, reason = "not every test needs everything")]
mod stage;
mod tenants;

/// The same tests run on Postgres, in `dashboard_on_postgres`.
const ON_POSTGRES: bool = false;
