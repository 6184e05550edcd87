//! Once-only claims: of all who would tell of a subject, one does.
//!
//! A subject (`plan/123`) has a generation, which begins at 1. An enqueue that names the subject claims it together with
//! its event, in one transaction: the first wins, everyone after gets nothing, whatever the type of their event. A reset
//! begins the next generation, in which there is again one winner. A straggler that names the generation it knew gets
//! nothing once that is over.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::EventId;

/// What an enqueue claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// What there is to tell of.
    pub subject: String,
    /// Only in this generation; none means the one that is current.
    pub generation: Option<u64>,
}

/// How a subject stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnceClaim {
    /// Whose it is.
    pub tenant: String,
    /// The subject.
    pub subject: String,
    /// The current generation.
    pub generation: u64,
    /// Who has claimed it in this generation, if anybody has.
    pub winner: Option<OnceWinner>,
}

/// The event that claimed a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnceWinner {
    /// Which one.
    pub event_id: EventId,
    /// Its type.
    pub event_type: String,
    /// When.
    pub claimed_at: Timestamp,
}
