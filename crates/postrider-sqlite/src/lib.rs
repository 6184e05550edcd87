//! Postrider's store on an embedded SQLite file.
//!
//! [`SqliteStore`] implements [`postrider::Store`]: everything that a dispatcher needs, in one file and with nothing to
//! install. An application that keeps its own tables in the same file writes them and enqueues events in one
//! [transaction](SqliteStore::transaction).
//!
//! # How it is built
//!
//! SQLite has one writer at a time, so there is one writer thread with one connection, and all writes queue for it. It
//! takes whatever is waiting, runs each piece of work in a savepoint of its own inside one `BEGIN IMMEDIATE`, and commits
//! once. Another thread syncs the log and answers everyone then: many callers share one `fsync`, and the writer goes on
//! meanwhile. Reads have connections of their own,
//! and never wait for a writer (WAL).
//!
//! Several processes may use one file at the same time, but only one may dispatch from it: see
//! [`Store::start_dispatching`](postrider::Store::start_dispatching), which locks `<file>.lock`.
//!
//! The secrets of endpoints are encrypted in the file, under the keys of [`SqliteStore::with_keyring`]. Whoever has a copy
//! of the file, but not the key, cannot sign in anybody's name.

mod browse;
mod bucket;
mod claim;
mod clock;
mod contract;
mod diagnose;
mod dispatch_lock;
mod endpoints;
mod enqueue;
mod error;
mod filter;
mod in_place;
mod keys;
mod migrate;
mod once;
mod operate;
mod places;
mod readers;
mod remembered;
mod retain;
mod rows;
mod settle;
mod sql;
mod store;
mod streak;
mod sweep;
mod syncer;
mod transaction;
mod vault;
mod wake;
mod writer;

#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

pub use rusqlite;
pub use store::SqliteStore;
pub use transaction::SqliteTransaction;
