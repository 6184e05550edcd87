//! From a URI's host to a connection: look up, vet, dial what was vetted, negotiate TLS.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_resolver::TokioResolver;
use http::Uri;
use http::uri::Scheme;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::failure::{ConnectFailure, Exhausted};
use super::progress::Progress;
use super::stream::Stream;
use super::{resolver, tls};
use crate::destination::DestinationPolicy;
use crate::outcome::Phase;

/// How long an address may take before the next one is tried beside it. An address that answers wins; the others are
/// dropped.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How many of a name's addresses are dialled. All of them are vetted.
const DIALLED_ADDRESSES: usize = 8;

/// Makes connections for the HTTP client.
#[derive(Clone)]
pub(super) struct Connector(Arc<Shared>);

struct Shared {
    destinations: Arc<DestinationPolicy>,
    resolver: TokioResolver,
    tls: TlsConnector,
    connect_timeout: Duration,
    kept_response_bytes: usize,
}

impl Connector {
    pub(super) fn new(
        destinations: Arc<DestinationPolicy>,
        resolver: TokioResolver,
        tls: Arc<ClientConfig>,
        connect_timeout: Duration,
        kept_response_bytes: usize,
    ) -> Self {
        Self(Arc::new(Shared {
            destinations,
            resolver,
            tls: TlsConnector::from(tls),
            connect_timeout,
            kept_response_bytes,
        }))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectFailure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let shared = Arc::clone(&self.0);
        let progress = Progress::followed();
        Box::pin(async move { shared.connect(&uri, &progress).await.map(TokioIo::new) })
    }
}

impl Shared {
    async fn connect(&self, uri: &Uri, progress: &Progress) -> Result<Stream, ConnectFailure> {
        let deadline = Instant::now() + self.connect_timeout;
        let secure = uri.scheme() == Some(&Scheme::HTTPS);
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);

        progress.enter(Phase::Resolving);
        let addresses = timeout_at(deadline, self.vetted_addresses(host))
            .await
            .map_err(|_| ConnectFailure::Timeout(Phase::Resolving))??;

        progress.enter(Phase::Connecting);
        let tcp = timeout_at(deadline, dial(addresses, port))
            .await
            .map_err(|_| ConnectFailure::Timeout(Phase::Connecting))??;

        let stream = if secure {
            progress.enter(Phase::Handshaking);
            let tls = timeout_at(deadline, self.negotiate(host, tcp))
                .await
                .map_err(|_| ConnectFailure::Timeout(Phase::Handshaking))??;
            Stream::tls(tls, self.kept_response_bytes)
        } else {
            Stream::plain(tcp, self.kept_response_bytes)
        };
        progress.enter(Phase::Waiting);
        Ok(stream)
    }

    /// The addresses of `host`, each of which may be dialled; or none at all.
    async fn vetted_addresses(&self, host: &str) -> Result<Vec<IpAddr>, ConnectFailure> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => resolver::addresses(&self.resolver, host).await?,
        };
        for address in &addresses {
            self.destinations.check_address(*address).map_err(ConnectFailure::Blocked)?;
        }
        Ok(addresses)
    }

    async fn negotiate(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ConnectFailure> {
        // A trailing dot makes a name absolute for the resolver. Certificates are written without it.
        let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host))
            .map_err(|_| ConnectFailure::Tls(format!("`{host}` is not a name that a certificate can be for")))?
            .to_owned();
        self.tls.connect(name, tcp).await.map_err(|error| ConnectFailure::Tls(tls::describe(&error)))
    }
}

/// Dials the addresses in turn, the next one as soon as the last has failed or has been silent for a while.
async fn dial(addresses: Vec<IpAddr>, port: u16) -> Result<TcpStream, ConnectFailure> {
    let mut waiting: VecDeque<SocketAddr> =
        in_turn(addresses).into_iter().take(DIALLED_ADDRESSES).map(|address| SocketAddr::new(address, port)).collect();
    let mut dialling = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some(address) = waiting.pop_front() {
            dialling.push(async move { (address, TcpStream::connect(address).await) });
        }
        let next_address = async {
            if waiting.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(NEXT_ADDRESS_AFTER).await;
        };
        tokio::select! {
            biased;
            dialled = dialling.next() => match dialled {
                Some((_, Ok(tcp))) => {
                    // Requests are written whole; waiting for more of them to share a packet would only delay them.
                    let _ = tcp.set_nodelay(true);
                    return Ok(tcp);
                }
                Some((address, Err(error))) => {
                    if let Some(exhausted) = Exhausted::found_in(&error) {
                        return Err(ConnectFailure::Exhausted(exhausted));
                    }
                    failures.push(describe_dial(address, &error));
                }
                None => return Err(ConnectFailure::Connect(failures.join("; "))),
            },
            () = next_address => {}
        }
    }
}

/// Alternates between the two families, the resolver's first one first, so that a broken family costs one address.
fn in_turn(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let Some(first) = addresses.first().copied() else { return addresses };
    let (mut leading, mut trailing): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut ordered = Vec::with_capacity(leading.len() + trailing.len());
    while !(leading.is_empty() && trailing.is_empty()) {
        ordered.extend(leading.pop_front());
        ordered.extend(trailing.pop_front());
    }
    ordered
}

fn describe_dial(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("connection refused by {address}"),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => format!("connection reset by {address}"),
        io::ErrorKind::TimedOut => format!("no answer from {address}"),
        io::ErrorKind::HostUnreachable => format!("no route to {address}"),
        io::ErrorKind::NetworkUnreachable => format!("the network of {address} is unreachable"),
        _ => format!("cannot connect to {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_no_address_is_lost() {
        let addresses: Vec<IpAddr> =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].iter().map(|text| text.parse().expect("an address")).collect();
        let ordered: Vec<String> = in_turn(addresses).iter().map(ToString::to_string).collect();
        assert_eq!(ordered, ["2001:db8::1", "192.0.2.1", "2001:db8::2"]);
        assert!(in_turn(Vec::new()).is_empty());
    }

    #[tokio::test]
    async fn an_address_that_answers_is_found_behind_one_that_refuses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let port = listener.local_addr().expect("its address").port();
        // Nothing listens on that port of ::1, or IPv6 is absent; either way the first address fails.
        let addresses = vec!["::1".parse().expect("v6"), "127.0.0.1".parse().expect("v4")];
        let tcp = dial(addresses, port).await.expect("a connection");
        assert!(tcp.nodelay().expect("an option"));
    }
}
