//! What Postrider promises, tried on real processes.
//!
//! The tests under `tests/` start the command line as people do, kill it, freeze it, take its database away, and put
//! receivers in front of it that no library would be rude enough to play. This is what they share:
//!
//! - [`process`] runs the command line, signals it, and reads what it prints.
//! - [`cluster`] is a Postgres of a test's own, which can be stopped in every way that Postgres knows.
//! - [`proxy`] is the wire to a Postgres, on which answers come late, or never, or get lost; [`counter`] counts what goes
//!   over it.
//! - [`inbox`] is a moody receiver that writes everything down, [`load`] enqueues by every way in and keeps a ledger,
//!   [`fleet`] runs and ends dispatchers, [`chaos`] does so by a seed ([`dice`]); what the database says then
//!   ([`evidence`]) and all the rest is judged by the [`checker`].
//! - [`faketime`] gives a process a wrong clock, and [`memory`] says how much one has held, and limits it.
//! - [`canary`] are the strings that must never be printed. Whatever a test starts is searched for them when it ends.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it, as the test itself may")]

pub mod canary;
pub mod chaos;
pub mod checker;
pub mod cluster;
pub mod counter;
pub mod dice;
pub mod evidence;
pub mod faketime;
pub mod fleet;
pub mod inbox;
pub mod load;
pub mod memory;
pub mod process;
pub mod proxy;
