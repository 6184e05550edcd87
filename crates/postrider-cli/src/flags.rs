//! Flags that set keys of the configuration, in the groups in which commands take them.

use clap::Args;

use crate::config::{Flags, Key};

/// Puts the flags that were given into a list.
fn given<const N: usize>(flags: [(Key, Option<&String>); N]) -> Flags {
    flags.into_iter().filter_map(|(key, text)| Some((key, text?.clone()))).collect()
}

/// Which destinations are accepted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Destinations")]
pub(crate) struct DestinationFlags {
    /// Only these hosts: `hooks.example.com`, `*.example.com`; empty means any public host
    #[arg(long, value_name = "PATTERNS")]
    allowed_hosts: Option<String>,
    /// Private networks that are open, such as `127.0.0.0/8,10.1.0.0/16`
    #[arg(long, value_name = "CIDRS")]
    allowed_networks: Option<String>,
    /// Refuse destinations without TLS
    #[arg(long, value_name = "TRUTH", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    require_https: Option<String>,
}

impl DestinationFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::AllowedHosts, self.allowed_hosts.as_ref()),
            (Key::AllowedNetworks, self.allowed_networks.as_ref()),
            (Key::RequireHttps, self.require_https.as_ref()),
        ])
    }
}

/// How deliveries are signed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signature")]
pub(crate) struct SignatureFlags {
    /// `standard` (Standard Webhooks) or `hmac-sha256-hex`
    #[arg(long, value_name = "SCHEME")]
    signature: Option<String>,
    /// What the headers of hmac-sha256-hex begin with, such as `X-Acme-`
    #[arg(long, value_name = "PREFIX")]
    header_prefix: Option<String>,
    /// What hmac-sha256-hex signs: `timestamp.body` or `body`
    #[arg(long, value_name = "WHAT")]
    signed: Option<String>,
}

impl SignatureFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::Signature, self.signature.as_ref()),
            (Key::HeaderPrefix, self.header_prefix.as_ref()),
            (Key::Signed, self.signed.as_ref()),
        ])
    }
}

/// The secret for destinations without a registered endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Signature")]
pub(crate) struct SigningSecretFlag {
    /// Signs deliveries to bare URLs; better set as the variable `POSTRIDER_SIGNING_SECRET`, which other users cannot see
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<String>,
}

impl SigningSecretFlag {
    pub(crate) fn flags(&self) -> Flags {
        given([(Key::SigningSecret, self.signing_secret.as_ref())])
    }
}

/// How large payloads may be.
#[derive(Debug, Args)]
pub(crate) struct PayloadFlags {
    /// Refuse larger payloads
    #[arg(long, value_name = "BYTES")]
    max_payload_bytes: Option<String>,
}

impl PayloadFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([(Key::MaxPayloadBytes, self.max_payload_bytes.as_ref())])
    }
}

/// When to try again.
#[derive(Debug, Args)]
#[command(next_help_heading = "Retries")]
pub(crate) struct RetryFlags {
    /// The delays between attempts, such as `30s,2m,10m,1h,6h`; the last one repeats
    #[arg(long, value_name = "DELAYS", alias = "schedule")]
    retry_schedule: Option<String>,
    /// How many attempts there are at most
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<String>,
    /// Lengthen each delay by up to this share of it, 0 to 1
    #[arg(long, value_name = "SHARE")]
    retry_jitter: Option<String>,
}

impl RetryFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::RetrySchedule, self.retry_schedule.as_ref()),
            (Key::MaxAttempts, self.max_attempts.as_ref()),
            (Key::RetryJitter, self.retry_jitter.as_ref()),
        ])
    }
}

/// How a dispatcher works.
#[derive(Debug, Args)]
#[command(next_help_heading = "Dispatcher")]
pub(crate) struct DispatcherFlags {
    /// The name under which it holds leases; must be new at each start
    #[arg(long, value_name = "NAME")]
    worker_id: Option<String>,
    /// How long a crashed dispatcher's deliveries wait
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
    /// How often to look for work without having been woken
    #[arg(long, value_name = "DURATION")]
    poll_interval: Option<String>,
    /// How many attempts are under way at most
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<String>,
    /// How many of them go to one destination
    #[arg(long, value_name = "COUNT")]
    max_in_flight_per_destination: Option<String>,
    /// For one whole attempt, the response's body included
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// For becoming connected
    #[arg(long, value_name = "DURATION")]
    connect_timeout: Option<String>,
    /// Name servers to ask instead of the system's, such as `10.0.0.2,10.0.0.3:5353`
    #[arg(long, value_name = "ADDRESSES")]
    name_servers: Option<String>,
    /// How much of a response is kept in the attempt's record
    #[arg(long, value_name = "BYTES")]
    kept_response_bytes: Option<String>,
    /// How long to wait for attempts under way when told to stop
    #[arg(long, value_name = "DURATION")]
    drain_timeout: Option<String>,
    /// How many claims in a row may expire unsettled before a delivery is dead
    #[arg(long, value_name = "COUNT")]
    max_abandoned: Option<String>,
    /// Whether it dispatches at all
    #[arg(long, value_name = "TRUTH")]
    dispatch_enabled: Option<String>,
    /// `pretty` or `json`
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl DispatcherFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::WorkerId, self.worker_id.as_ref()),
            (Key::Lease, self.lease.as_ref()),
            (Key::PollInterval, self.poll_interval.as_ref()),
            (Key::MaxInFlight, self.max_in_flight.as_ref()),
            (Key::MaxInFlightPerDestination, self.max_in_flight_per_destination.as_ref()),
            (Key::Timeout, self.timeout.as_ref()),
            (Key::ConnectTimeout, self.connect_timeout.as_ref()),
            (Key::NameServers, self.name_servers.as_ref()),
            (Key::KeptResponseBytes, self.kept_response_bytes.as_ref()),
            (Key::DrainTimeout, self.drain_timeout.as_ref()),
            (Key::MaxAbandoned, self.max_abandoned.as_ref()),
            (Key::DispatchEnabled, self.dispatch_enabled.as_ref()),
            (Key::LogFormat, self.log_format.as_ref()),
        ])
    }
}

/// What a server and a dispatcher have in common.
#[derive(Debug, Args)]
#[command(next_help_heading = "Upkeep")]
pub(crate) struct UpkeepFlags {
    /// Encrypts secrets at rest; better set as the variable `POSTRIDER_SECRET_KEY`, which other users cannot see
    #[arg(long, value_name = "KEYS")]
    secret_key: Option<String>,
    /// How long settled events and their attempts are kept, or `never` to keep everything
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// Disable an endpoint whose attempts have all failed for this long, or `never`
    #[arg(long, value_name = "DURATION")]
    disable_after: Option<String>,
}

impl UpkeepFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::SecretKey, self.secret_key.as_ref()),
            (Key::Retention, self.retention.as_ref()),
            (Key::DisableAfter, self.disable_after.as_ref()),
        ])
    }
}

/// How a server serves.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Where the API is; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// How many connections are open at most
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<String>,
    /// For one request, from its first byte to the answer
    #[arg(long, value_name = "DURATION")]
    request_timeout: Option<String>,
    /// Believe the proxy in front of the server when it says in `X-Forwarded-Proto` that a browser speaks https
    #[arg(long, value_name = "TRUTH", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    trust_forwarded_proto: Option<String>,
}

impl ServerFlags {
    pub(crate) fn flags(&self) -> Flags {
        given([
            (Key::Listen, self.listen.as_ref()),
            (Key::MaxConnections, self.max_connections.as_ref()),
            (Key::RequestTimeout, self.request_timeout.as_ref()),
            (Key::TrustForwardedProto, self.trust_forwarded_proto.as_ref()),
        ])
    }
}

/// Whose things a client command is about.
#[derive(Debug, Args)]
pub(crate) struct TenantFlag {
    /// One tenant's, or `*` for all when looking [default: what the API key is for; on a database all when looking, and
    /// `default` otherwise]
    #[arg(
        long,
        value_name = "NAME",
        env = "POSTRIDER_TENANT",
        hide_env_values = true,
        help_heading = "On whose behalf"
    )]
    pub(crate) tenant: Option<String>,
}
