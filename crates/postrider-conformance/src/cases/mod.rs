//! The cases, by theme. Each is a function of a [`Trial`](crate::Trial); [`suite!`](crate::suite) makes tests of them.

pub mod announcements;
pub mod browse;
pub mod claim;
pub mod documents;
pub mod endpoints;
pub mod enqueue;
pub mod idempotency;
pub mod lease;
pub mod operator;
pub mod recover;
pub mod retention;
pub mod schedule;
pub mod settle;
pub mod together;
