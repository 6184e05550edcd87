//! What goes over the wire, in both directions.

mod problem;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use problem::{FieldProblem, Problem};

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Listing<T> {
    /// The rows.
    pub data: Vec<T>,
    /// What to give as `cursor` for the next page; null at the end.
    pub next_cursor: Option<String>,
}
