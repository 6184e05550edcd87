//! A process that runs until it is told to stop: a dispatcher, a server, or both, with one end for all.
//!
//! The first signal asks every part to end in order, each within `drain_timeout`; the second one does not ask. A part
//! that ends by itself takes the others along: half a server that looks like a whole one helps nobody.

use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use postrider::{Dispatcher, Totals};
use postrider_server::{Server, ServerConfig, Service, ServiceSettings};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::signals::{self, Signals};

/// What runs.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) dispatcher: Option<Dispatcher>,
    pub(crate) server: Option<(Server, TcpListener)>,
}

/// How it ended, if it ended well.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What the dispatcher did, if there was one.
    pub(crate) totals: Option<Totals>,
    /// A signal ended it, rather than that there was nothing left to do.
    pub(crate) interrupted: bool,
}

enum Part {
    Dispatcher(Box<Totals>),
    Server,
}

impl Process {
    /// Runs all parts until a signal, or until `done` completes.
    pub(crate) async fn run(self, mut signals: Signals, done: impl Future<Output = ()>) -> Result<Ended, Failure> {
        let (stop, stopping) = watch::channel(false);
        let mut parts: JoinSet<Result<Part, Failure>> = JoinSet::new();
        if let Some(dispatcher) = self.dispatcher {
            let stopped = told(stopping.clone());
            parts.spawn(async move { Ok(Part::Dispatcher(Box::new(dispatcher.run(stopped).await?))) });
        }
        if let Some((server, listener)) = self.server {
            let stopped = told(stopping);
            parts.spawn(async move { server.run(listener, stopped).await.map(|()| Part::Server).map_err(broken) });
        }

        let mut ended = Ended { totals: None, interrupted: false };
        let mut failure = None;
        tokio::select! {
            signal = signals.next() => {
                tracing::info!("{signal}: stopping");
                ended.interrupted = true;
            }
            () = done => tracing::info!("done: stopping"),
            Some(early) = parts.join_next() => failure = Some(too_early(early)),
        }
        stop.send_replace(true);
        tokio::spawn(async move {
            let signal = signals.next().await;
            signals::exit_at_once(signal)
        });
        while let Some(part) = parts.join_next().await {
            match part {
                Ok(Ok(Part::Dispatcher(totals))) => ended.totals = Some(*totals),
                Ok(Ok(Part::Server)) => {}
                // The first failure is the cause, and what follows from it is only in the log.
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(error) => failure = failure.or(Some(panicked(&error))),
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(ended),
        }
    }
}

async fn told(mut stopping: watch::Receiver<bool>) {
    // If whoever would tell is gone, it is over as well.
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn too_early(ended: Result<Result<Part, Failure>, JoinError>) -> Failure {
    let message = match ended {
        Ok(Err(failure)) => return failure,
        Err(error) => return panicked(&error),
        Ok(Ok(Part::Dispatcher(_))) => "the dispatcher has ended without having been told to",
        Ok(Ok(Part::Server)) => "the server has ended without having been told to",
    };
    Failure::new(Exit::Failed, "ended_too_early", message).hint("its last words are in the log")
}

fn panicked(error: &JoinError) -> Failure {
    let message = format!("a part of this process broke: {error}");
    Failure::new(Exit::Failed, "internal", message).hint("this is a bug; what was acknowledged is safe in the database")
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err calls")]
fn broken(error: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, "server_failed", format!("the server cannot go on: {error}"))
}

/// The operations on a store, as they are configured.
pub(crate) fn service_settings(config: &Config) -> ServiceSettings {
    ServiceSettings {
        admission: config.admission.clone(),
        retry_policy: config.retry_policy.clone(),
        ..ServiceSettings::default()
    }
}

/// A server's limits, as they are configured.
pub(crate) fn server_config(config: &Config) -> ServerConfig {
    ServerConfig {
        drain_timeout: config.drain_timeout,
        max_connections: config.max_connections,
        request_timeout: config.request_timeout,
        trust_forwarded_proto: config.trust_forwarded_proto,
        ..ServerConfig::default()
    }
}

/// `/healthz`, `/readyz` and `/metrics` of a dispatcher.
pub(crate) fn operations(service: Service, config: &Config, dispatcher: &Dispatcher) -> Server {
    Server::operations_only(service, server_config(config)).dispatcher_monitor(Some(dispatcher.monitor()))
}

/// Takes a port, and says at which URL it is to be found.
pub(crate) async fn bind(address: SocketAddr) -> Result<(TcpListener, String), Failure> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, url(address)))
    };
    bound.await.map_err(|error: std::io::Error| {
        let message = format!("cannot listen on {address}: {error}");
        let failure = Failure::new(Exit::Failed, "port_unavailable", message);
        match error.kind() {
            std::io::ErrorKind::AddrInUse => failure.hint(
                "something listens there already, perhaps another `postrider serve`: stop it, or choose another \
                 address with --listen; port 0 takes a free one",
            ),
            std::io::ErrorKind::AddrNotAvailable => failure.hint("it is not an address of this machine"),
            std::io::ErrorKind::PermissionDenied => failure.hint("choose a port above 1023"),
            _ => failure,
        }
    })
}

/// Where a browser on this machine finds what listens on an address.
pub(crate) fn url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_can_be_clicked_on() {
        for (address, expected) in [
            ("127.0.0.1:8400", "http://127.0.0.1:8400"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:8400", "http://[::1]:8400"),
            ("10.1.2.3:8400", "http://10.1.2.3:8400"),
        ] {
            assert_eq!(url(address.parse().unwrap()), expected);
        }
    }
}
