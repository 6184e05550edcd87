//! What must hold for the repository as a whole, and for no crate alone.
//!
//! Each rule is a function from values to complaints, with a unit test that shows it a bad sample; the test targets
//! beside this crate apply the rules to the real repository. A complaint is a sentence that names the place.

pub mod cargo;
pub mod files;
pub mod graph;
pub mod licences;
pub mod manifests;
pub mod markdown;
pub mod promises;
pub mod sql;
pub mod words;

/// Fails with all complaints at once, since repairing one by one costs a run each.
pub fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// The README's examples, run as tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The programs of the page about embedding, likewise. The one on Postgres finds its database in `DATABASE_URL`.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embed.md")]
pub struct Embed;
