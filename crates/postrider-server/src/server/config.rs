//! Within which limits the server works.

use std::time::Duration;

use postrider::Keyring;

/// Within which limits the server works.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// No keys are needed: everybody may do everything. Only possible on a loopback address.
    pub dev: bool,
    /// What seals the sessions of the dashboard. Servers with the same keys know each other's. Without any, a new key is made
    /// at each start, and whoever was signed in has to sign in again.
    pub session_keys: Keyring,
    /// Whether a proxy stands in front of the server that says in `X-Forwarded-Proto` whether a browser speaks https, and lets
    /// no such header of others through.
    pub trust_forwarded_proto: bool,
    /// How long new connections are still served when the server stops, while it says that it is not ready: a load balancer
    /// needs a moment to notice. Not longer than the drain timeout.
    pub linger: Duration,
    /// How long requests under way may take to finish when the server stops.
    pub drain_timeout: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Requests at once.
    pub max_requests: usize,
    /// The bodies of all requests under way may have this much together.
    pub max_body_bytes_held: usize,
    /// A request's headers may have this much in all.
    pub max_header_bytes: usize,
    /// A request may have this many headers.
    pub max_headers: usize,
    /// A request's head must arrive within this time.
    pub header_read_timeout: Duration,
    /// A request's body must arrive within this time.
    pub body_read_timeout: Duration,
    /// A whole request must be answered within this time; streams are not bound by it.
    pub request_timeout: Duration,
    /// A connection without a request is closed after this time.
    pub keep_alive_timeout: Duration,
    /// A client that does not read its answer for this long is given up.
    pub write_timeout: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            dev: false,
            session_keys: Keyring::default(),
            trust_forwarded_proto: false,
            linger: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            max_connections: 4_096,
            max_requests: 2_048,
            max_body_bytes_held: 256 * 1024 * 1024,
            max_header_bytes: 32 * 1024,
            max_headers: 100,
            header_read_timeout: Duration::from_secs(10),
            body_read_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
        }
    }
}
