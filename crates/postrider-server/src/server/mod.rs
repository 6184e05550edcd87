//! The API on a socket.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use postrider::Monitor;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::http::{self, AppState};
use crate::service::Service;

/// Within which limits the server works.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// No keys are needed. Only possible on a loopback address.
    pub dev: bool,
    /// How long requests under way may take to finish when the server stops.
    pub drain_timeout: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Requests at once.
    pub max_requests: usize,
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
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            dev: false,
            drain_timeout: Duration::from_secs(30),
            max_connections: 4_096,
            max_requests: 2_048,
            max_header_bytes: 32 * 1024,
            max_headers: 100,
            header_read_timeout: Duration::from_secs(10),
            body_read_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(75),
        }
    }
}

/// The API, ready to be put on a socket.
#[derive(Debug)]
pub struct Server {
    service: Service,
    config: ServerConfig,
    monitor: Option<Monitor>,
    operations_only: bool,
}

impl Server {
    /// The whole API.
    pub fn new(service: Service, config: ServerConfig) -> Self {
        Self { service, config, monitor: None, operations_only: false }
    }

    /// Only `/healthz`, `/readyz` and `/metrics`, for a process that does something else.
    pub fn operations_only(service: Service, config: ServerConfig) -> Self {
        Self { operations_only: true, ..Self::new(service, config) }
    }

    /// With figures about the dispatcher that runs in the same process.
    #[must_use]
    pub fn dispatcher_monitor(mut self, monitor: Option<Monitor>) -> Self {
        self.monitor = monitor;
        self
    }

    /// Serves until `shutdown` completes. Then it takes no new connections, and waits up to the drain timeout for the
    /// requests under way.
    pub async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let (drain, draining) = watch::channel(false);
        let state = AppState::new(self.service, self.config, self.monitor, draining);
        let router: Router = if self.operations_only { http::operations_only(state) } else { http::api(state) };
        tokio::select! {
            served = async { axum::serve(listener, router).await } => served,
            () = shutdown => { drain.send_replace(true); Ok(()) }
        }
    }
}
