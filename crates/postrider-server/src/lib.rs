//! Postrider as a server: the HTTP API and the dashboard, on any store.
//!
//! Three layers, each knowing only those before it:
//!
//! - [`api`]: what goes over the wire, in both directions. Clients can use the same types.
//! - [`service`]: what the API does, without HTTP. The command line works on it directly when it has a database at hand.
//! - [`http`]: routes, keys, limits, and how errors are told; and the dashboard, which shows the same to people. [`Server`]
//!   puts it on a socket.
#![allow(clippy::result_large_err, reason = "a problem is rare, and goes straight into an answer")]

pub mod api;
mod dashboard;
pub mod http;
mod metrics;
mod queue;
pub mod server;
pub mod service;

pub use http::openapi;
pub use queue::QueueSettings;
pub use server::{Server, ServerConfig};
pub use service::{Caller, Service, ServiceSettings, Tenancy};
