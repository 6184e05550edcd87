//! The API on a socket.
//!
//! Every connection is a task. It is closed when its client is silent for too long, takes too long to say what it wants, or
//! does not read what it is told ([`connection`]); so nobody can hold a place for ever. When the server stops, connections
//! without a request are closed at once, and those with one after it.

mod activity;
mod config;
mod connection;
mod patient;

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use postrider::Monitor;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

pub use config::ServerConfig;

use crate::http::{self, AppState};
use crate::service::Service;

/// How long to wait when no connection can be accepted, most likely because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often it is told that no connection can be accepted, for as long as that is so.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How many that are turned away are told so at a time. The others are just closed.
const TURNED_AWAY: usize = 64;

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

    /// Serves until `shutdown` completes. Then it says that it is not ready, lingers, takes no new connections, and waits up
    /// to the drain timeout for the requests under way.
    ///
    /// The error is one that prevents the start: without keys, the address must be a loopback one.
    pub async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let address = listener.local_addr()?;
        if self.config.dev && !address.ip().is_loopback() {
            let message = format!("dev mode needs no keys, so it must listen on a loopback address, not on {address}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        // From now on it is counted what becomes of attempts; if the database is away, from the first scrape on.
        let service = self.service.clone();
        tokio::spawn(async move { service.metrics().endpoints.catch_up(&**service.store()).await });
        let (drain, draining) = watch::channel(false);
        let (close, closing) = watch::channel(false);
        let state = AppState::new(self.service.clone(), self.config.clone(), self.monitor, draining.clone());
        let router: Router = if self.operations_only { http::operations_only(state) } else { http::api(state) };
        let places = Places {
            free: Arc::new(Semaphore::new(self.config.max_connections)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
        };
        let config = Arc::new(self.config);
        let mut connections = JoinSet::new();
        let door = Door { listener, places, router, config: Arc::clone(&config), closing };
        door.keep_open(shutdown, &mut connections).await;
        tracing::info!(connections = connections.len(), "stopping: not ready any more");
        drain.send_replace(true);
        let until = Instant::now() + config.drain_timeout;
        door.keep_open(tokio::time::sleep(config.linger.min(config.drain_timeout)), &mut connections).await;
        drop(door);
        close.send_replace(true);
        if timeout_at(until, async { while connections.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!(connections = connections.len(), "requests did not finish in time and are broken off");
        }
        connections.shutdown().await;
        // What was taken from callers that have gone away is still to be written.
        if timeout_at(until.max(Instant::now() + Duration::from_secs(1)), self.service.flush()).await.is_err() {
            tracing::warn!("events that nobody waits for any more could not be written in time");
        }
        Ok(())
    }
}

/// Where connections come in.
struct Door {
    listener: TcpListener,
    places: Places,
    router: Router,
    config: Arc<ServerConfig>,
    closing: watch::Receiver<bool>,
}

impl Door {
    /// Serves whoever connects, until `until` completes.
    async fn keep_open(&self, until: impl Future<Output = ()>, connections: &mut JoinSet<()>) {
        let mut until = pin!(until);
        let mut told: Option<Instant> = None;
        loop {
            tokio::select! {
                () = &mut until => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.places.serve(stream, connections, |stream| {
                        let (router, config) = (self.router.clone(), Arc::clone(&self.config));
                        connection::serve(stream, router, config, self.closing.clone())
                    }),
                    Err(error) => {
                        if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                            tracing::warn!(%error, "cannot accept a connection");
                            told = Some(Instant::now());
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// How many connections there may be.
struct Places {
    free: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
}

impl Places {
    fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        stream: TcpStream,
        connections: &mut JoinSet<()>,
        serve: impl FnOnce(TcpStream) -> F,
    ) {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            let serving = serve(stream);
            connections.spawn(async move {
                serving.await;
                drop(place);
            });
        } else if let Ok(place) = Arc::clone(&self.turned_away).try_acquire_owned() {
            connections.spawn(async move {
                connection::turn_away(stream).await;
                drop(place);
            });
        }
    }
}
