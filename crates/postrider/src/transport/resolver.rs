//! Names to addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

use super::TransportError;
use super::failure::{ConnectFailure, Exhausted};

const LOCAL_NAME_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);
/// How long "there is no such name" is believed. A retry, half a minute later, asks again.
const NEGATIVE_CACHE: Duration = Duration::from_secs(10);
/// The longest that one query waits for its answer.
const MAX_QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Names being looked up at once over one connection to a name server, so that slow ones do not turn others away.
const MAX_ACTIVE_REQUESTS: usize = 1024;

/// A resolver that asks `name_servers`, or the system's if there are none, and gives up well before `connect_timeout`.
pub(super) fn resolver(
    name_servers: &[SocketAddr],
    connect_timeout: Duration,
) -> Result<TokioResolver, TransportError> {
    let mut builder = if name_servers.is_empty() {
        TokioResolver::builder_tokio().unwrap_or_else(|error| {
            // What resolv.conf(5) says of a machine without name servers. Addresses and /etc/hosts work there as well.
            tracing::warn!(%error, "no name servers in /etc/resolv.conf; asking the one on this machine");
            TokioResolver::builder_with_config(asking(&[LOCAL_NAME_SERVER]), TokioRuntimeProvider::default())
        })
    } else {
        let mut builder = TokioResolver::builder_with_config(asking(name_servers), TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = ResolveHosts::Never;
        builder
    };
    limit(builder.options_mut(), connect_timeout);
    builder.build().map_err(|error| TransportError::NameServers { reason: error.to_string() })
}

fn asking(name_servers: &[SocketAddr]) -> ResolverConfig {
    let servers = name_servers.iter().map(|server| {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.to_vec())
    });
    ResolverConfig::from_parts(None, Vec::new(), servers.collect())
}

fn limit(options: &mut ResolverOpts, connect_timeout: Duration) {
    // Two queries that go unanswered take half of the time, so that silence is reported as the name server's.
    options.timeout = (connect_timeout / 4).min(MAX_QUERY_TIMEOUT);
    options.attempts = 1;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.negative_max_ttl = Some(NEGATIVE_CACHE);
    options.max_active_requests = MAX_ACTIVE_REQUESTS;
}

/// Every address of `name`, IPv4 and IPv6.
///
/// A name with a dot in it is complete. The system's search list is for names without one, so that what a name means does
/// not depend on which names exist in the domain that the machine happens to be in.
pub(super) async fn addresses(resolver: &TokioResolver, name: &str) -> Result<Vec<IpAddr>, ConnectFailure> {
    let lookup = if name.contains('.') && !name.ends_with('.') {
        resolver.lookup_ip(format!("{name}.")).await
    } else {
        resolver.lookup_ip(name).await
    };
    let addresses: Vec<IpAddr> = match lookup {
        Ok(answer) => answer.iter().collect(),
        Err(error) => return Err(failure(name, &error)),
    };
    if addresses.is_empty() {
        return Err(ConnectFailure::Dns(no_address(name)));
    }
    Ok(addresses)
}

fn failure(name: &str, error: &NetError) -> ConnectFailure {
    let exhausted = match error {
        NetError::Io(error) => Exhausted::found_in(error),
        _ => None,
    };
    exhausted.map_or_else(|| ConnectFailure::Dns(describe(name, error)), ConnectFailure::Exhausted)
}

fn no_address(name: &str) -> String {
    format!("the name `{name}` exists but has no address")
}

fn describe(name: &str, error: &NetError) -> String {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            format!("there is no name `{name}`")
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError => {
            no_address(name)
        }
        NetError::Dns(DnsError::NoRecordsFound(none)) => refused(name, none.response_code),
        NetError::Dns(DnsError::ResponseCode(code)) => refused(name, *code),
        NetError::Timeout => format!("no name server answered in time for `{name}`"),
        NetError::NoConnections => format!("no name server could be reached for `{name}`"),
        NetError::Io(error) => format!("no name server could be reached for `{name}`: {error}"),
        other => format!("cannot look up `{name}`: {other}"),
    }
}

fn refused(name: &str, code: ResponseCode) -> String {
    format!("the name server answered `{name}` with an error: {code}")
}
