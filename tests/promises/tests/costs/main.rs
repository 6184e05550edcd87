//! What things cost, in counts and not in times: statements, round trips, transactions, rows, pages, bytes of the log.
//!
//! A time says as much about the machine as about the program. A count is the same on every machine, if the work is
//! fixed: so the stores are driven in batches of one size, and what they do is counted exactly. A dispatcher and a
//! server choose their batches by what has come in meanwhile; theirs are bounded loosely, over a wire so slow that there
//! always is something. The bounds stand in `docs/costs.md` as well, with what was counted when it was written.
//!
//! Each bound has air above what is counted, but less than the regression that it is there for: a statement more per
//! delivery, results settled one by one, a claim that reads what it does not take, an index that is gone.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod dispatchers;
mod ledger;
mod pages;
mod server;
mod sqlite;
mod statistics;
mod tracer;
mod wire;
mod work;
