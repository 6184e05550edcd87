//! The dashboard on Postgres: the same tests as on SQLite.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../dashboard/browser.rs"]
mod browser;
#[path = "../dashboard/doors.rs"]
mod doors;
#[path = "../dashboard/flows.rs"]
mod flows;
#[path = "../dashboard/forms.rs"]
mod forms;
#[path = "../dashboard/live.rs"]
mod live;
#[path = "../dashboard/pages.rs"]
mod pages;
#[path = "../resources/stage.rs"]
#[allow(dead_code, reason = "not every test needs everything")]
mod stage;
#[path = "../dashboard/tenants.rs"]
mod tenants;

const ON_POSTGRES: bool = true;
