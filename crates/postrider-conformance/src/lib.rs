//! One suite that every store of Postrider must pass.
//!
//! A store's test crate describes its database as a [`Subject`] and stamps the suite out:
//!
//! ```text
//! async fn open() -> impl Subject { … }
//! postrider_conformance::suite!(open);
//! ```
//!
//! Each case then is a test of its own, with a database of its own. After every case the raw tables are compared with
//! what the store says: every delivery is in exactly one place. Names carry the number of the promise that they prove
//! (`p5_…`), or the acceptance criterion of the document that they come from (`doc_003_s1_…`).
//!
//! [`model`] is the same contract once more, as a plain program: random operations run against it and against a store,
//! and everything that can be observed must agree after each.
#![allow(clippy::unwrap_used, reason = "this crate is test code: a panic is how a case fails")]

#[allow(missing_docs, reason = "a case's name is its sentence")]
pub mod cases;
pub mod cluster;
pub mod faulty;
#[allow(missing_docs, reason = "a case's name is its sentence")]
#[allow(clippy::unused_async, reason = "all cases have one shape")]
pub mod flights;
pub mod logs;
pub mod model;
pub mod receiver;
pub mod subject;
mod suite;
pub mod trial;
pub mod wait;

pub use subject::{Ending, Places, Subject, keyring};
pub use trial::{Trial, run};
pub use wait::eventually;
