//! Faults of databases and of the system, on real processes: the database goes away, hangs, is full, is slow, loses an
//! answer; files are damaged, removed, read-only; descriptors run out. Each time what was acknowledged is compared with
//! what the database has, and that with what arrived.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod answers;
mod books;
mod disk;
mod exhausted;
mod files;
mod hanging;
mod outages;
mod stage;
