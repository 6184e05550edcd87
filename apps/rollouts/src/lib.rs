//! An example on Postrider: rollouts whose end is told once, by however many replicas.
//!
//! A plan has tasks, and each task has runs. Replicas run them. When a task fails, `PIPELINE_FAILED` is told, once per
//! generation of the plan; when all are done or skipped, `PIPELINE_COMPLETED` is, unless the generation has told of a
//! failure. Asking for tasks to be run begins the next generation.
//!
//! What it shows of Postrider: [`rollouts`] enqueues in its own transactions, under once-only claims
//! (`NewEvent::once_in`), and resets those in its own transactions (`PostgresStore::reset_once_in`); [`replica`] runs a
//! dispatcher beside the tasks.

pub mod error;
pub mod http;
pub mod notice;
mod object;
pub mod plan;
pub mod replica;
pub mod rollouts;
pub mod runs;

pub use error::Error;
pub use rollouts::Rollouts;
