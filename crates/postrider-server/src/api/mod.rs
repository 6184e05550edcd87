//! What goes over the wire, in both directions.

pub mod audit;
pub mod deliveries;
pub mod endpoints;
pub mod events;
pub mod keys;
pub(crate) mod object;
pub mod once;
pub mod overview;
mod problem;
pub(crate) mod schemas;
pub mod stream;
pub mod why;

use postrider::{Page, PageRequest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use problem::{FieldProblem, Problem};

/// A page of a list, newest first where nothing else is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Listing<T> {
    /// The rows. For one page so many are looked at and no more: where filters match few, it has fewer rows than its limit, or
    /// none, although there is a next page.
    pub data: Vec<T>,
    /// What to give as `cursor` for the next page; null at the end.
    pub next_cursor: Option<String>,
}

impl<T> Listing<T> {
    /// A store's page, row by row.
    pub fn from_page<R>(page: Page<R>, row: impl FnMut(R) -> T) -> Self {
        Self {
            data: page.items.into_iter().map(row).collect(),
            next_cursor: page.next.map(|cursor| cursor.to_string()),
        }
    }
}

/// The page that `limit` and `cursor` of a query ask for.
pub fn page_request(limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest, Problem> {
    let cursor = cursor.map(str::parse).transpose()?;
    Ok(PageRequest::new(limit.unwrap_or_else(|| PageRequest::default().limit()), cursor)?)
}
