//! The cases, by theme. Each is a function of a [`Trial`](crate::Trial); [`suite!`](crate::suite) makes tests of them.

pub mod announcements;
pub mod browse;
pub mod care;
pub mod changes;
pub mod claim;
pub mod documents;
pub mod each;
pub mod endpoints;
pub mod enqueue;
pub mod idempotency;
pub mod keys;
pub mod lease;
pub mod limits;
pub mod looking;
pub mod once;
pub mod operator;
pub mod recover;
pub mod removal;
pub mod retention;
pub mod schedule;
pub mod settle;
pub mod together;
