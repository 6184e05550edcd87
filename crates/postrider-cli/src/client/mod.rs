//! What client commands ask: a server over HTTP, or the service straight on a database.

pub(crate) mod http;
