//! Configuration from environment variables: each runtime reads what it needs and nothing else.
//!
//! A value that cannot hold does not get past here, and the error names its variable. Secrets are not repeated in it.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use postrider::{DestinationPolicy, LeaseTerm, RetryPolicy, Secret, WorkerId, duration};
use reqwest::Url;
use sqlx::postgres::PgConnectOptions;

pub(crate) const DATABASE_URL: &str = "PAYMENTS_DATABASE_URL";
pub(crate) const LISTEN: &str = "PAYMENTS_LISTEN";
pub(crate) const ALLOWED_HOSTS: &str = "PAYMENTS_WEBHOOK_ALLOWED_HOSTS";
pub(crate) const ALLOWED_NETWORKS: &str = "PAYMENTS_WEBHOOK_ALLOWED_NETWORKS";
pub(crate) const WEBHOOKS_ENABLED: &str = "PAYMENTS_WEBHOOKS_ENABLED";
pub(crate) const HMAC_SECRET: &str = "PAYMENTS_WEBHOOK_HMAC_SECRET";
pub(crate) const RPC_URL: &str = "PAYMENTS_RPC_URL";
pub(crate) const MIN_CONFIRMATIONS: &str = "PAYMENTS_MIN_CONFIRMATIONS";
pub(crate) const RECONCILE_INTERVAL: &str = "PAYMENTS_RECONCILE_INTERVAL";
const RECONCILE_IN_SERVER: &str = "PAYMENTS_RECONCILE_IN_SERVER";
const RECONCILE_LEASE: &str = "PAYMENTS_RECONCILE_LEASE";
const RECONCILE_BATCH: &str = "PAYMENTS_RECONCILE_BATCH";
const RPC_TIMEOUT: &str = "PAYMENTS_RPC_TIMEOUT";
const WEBHOOK_LEASE: &str = "PAYMENTS_WEBHOOK_LEASE";
const WEBHOOK_POLL_INTERVAL: &str = "PAYMENTS_WEBHOOK_POLL_INTERVAL";
const WEBHOOK_TIMEOUT: &str = "PAYMENTS_WEBHOOK_TIMEOUT";
const WEBHOOK_MAX_ATTEMPTS: &str = "PAYMENTS_WEBHOOK_MAX_ATTEMPTS";
const WEBHOOK_RETRY_INITIAL: &str = "PAYMENTS_WEBHOOK_RETRY_INITIAL";
const WEBHOOK_RETRY_MAX: &str = "PAYMENTS_WEBHOOK_RETRY_MAX";
const WEBHOOK_DRAIN_TIMEOUT: &str = "PAYMENTS_WEBHOOK_DRAIN_TIMEOUT";
const WORKER_ID: &str = "PAYMENTS_WORKER_ID";

/// A variable that is missing, or whose value cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {problem}")]
pub(crate) struct ConfigError {
    pub(crate) variable: &'static str,
    pub(crate) problem: String,
}

fn invalid(variable: &'static str, problem: impl fmt::Display) -> ConfigError {
    ConfigError { variable, problem: problem.to_string() }
}

type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// Where the database is; every runtime needs to know.
pub(crate) fn database_url(environment: &Environment) -> Result<String> {
    let url =
        environment.required(DATABASE_URL, "it says where Postgres is: postgres://user:password@host:5432/database")?;
    // What the parser says may quote a part of the URL, which may hold a password. The scheme it does not look at.
    let has_scheme = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    if !has_scheme || url.parse::<PgConnectOptions>().is_err() {
        return Err(invalid(DATABASE_URL, "not a URL like postgres://user:password@host:5432/database"));
    }
    Ok(url.to_owned())
}

/// Which destinations clients may name, and which may be dialled.
pub(crate) fn destinations(environment: &Environment) -> Result<DestinationPolicy> {
    let hosts =
        environment.required(ALLOWED_HOSTS, "it lists the hosts that webhooks may go to: good.com,*.good.com")?;
    let policy =
        DestinationPolicy::default().allow_hosts(list(hosts)).map_err(|refusal| invalid(ALLOWED_HOSTS, refusal))?;
    if policy.allowed_hosts().is_empty() {
        return Err(invalid(ALLOWED_HOSTS, "the list has no host in it"));
    }
    let networks = environment.text(ALLOWED_NETWORKS)?.unwrap_or_default();
    policy.allow_networks(list(networks)).map_err(|refusal| invalid(ALLOWED_NETWORKS, refusal))
}

/// Whether anybody is told anything.
pub(crate) fn webhooks_enabled(environment: &Environment) -> Result<bool> {
    environment.flag(WEBHOOKS_ENABLED, true)
}

/// What `payments server` needs.
#[derive(Debug)]
pub(crate) struct ServerConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) destinations: DestinationPolicy,
    /// A reconciler in the same process, where somebody wants a single one.
    pub(crate) reconciler: Option<ReconcilerConfig>,
}

impl ServerConfig {
    pub(crate) fn read(environment: &Environment) -> Result<Self> {
        let listen = environment.text(LISTEN)?.unwrap_or("127.0.0.1:8080");
        let in_server = environment.flag(RECONCILE_IN_SERVER, false)?;
        Ok(Self {
            listen: listen.parse().map_err(|_| invalid(LISTEN, "not an address and port like 127.0.0.1:8080"))?,
            destinations: destinations(environment)?,
            reconciler: if in_server { Some(ReconcilerConfig::read(environment)?) } else { None },
        })
    }
}

/// What `payments reconciler` needs.
#[derive(Debug)]
pub(crate) struct ReconcilerConfig {
    pub(crate) worker: WorkerId,
    pub(crate) rpc_url: Url,
    pub(crate) rpc_timeout: Duration,
    pub(crate) min_confirmations: NonZeroU64,
    pub(crate) interval: Duration,
    pub(crate) lease: Duration,
    pub(crate) batch: u32,
    pub(crate) webhooks_enabled: bool,
}

impl ReconcilerConfig {
    pub(crate) fn read(environment: &Environment) -> Result<Self> {
        let rpc_url = environment.required(RPC_URL, "it says where the EVM node is: http://127.0.0.1:8545")?;
        // The URL itself stays out of the message, because providers put keys into it.
        let not_a_url = || invalid(RPC_URL, "not an http or https URL");
        let rpc_url: Url = rpc_url.parse().map_err(|_| not_a_url())?;
        if !matches!(rpc_url.scheme(), "http" | "https") {
            return Err(not_a_url());
        }
        let rpc_timeout = environment.duration(RPC_TIMEOUT, secs(5), ms(1)..=secs(60))?;
        let lease = environment.duration(RECONCILE_LEASE, secs(30), ms(100)..=secs(3600))?;
        // A look at the chain is two questions in a row. If both may take longer than the lease, another replica would take
        // over what is still being looked at, again and again.
        if lease <= rpc_timeout * 2 {
            let (lease, timeout) = (duration::format(lease), duration::format(rpc_timeout));
            let problem = format!("a lease of {lease} is not longer than two calls of {RPC_TIMEOUT}={timeout}");
            return Err(invalid(RECONCILE_LEASE, problem));
        }
        let min_confirmations = environment.number(MIN_CONFIRMATIONS, 3, 1..=100_000)?;
        Ok(Self {
            worker: worker(environment)?,
            rpc_url,
            rpc_timeout,
            min_confirmations: NonZeroU64::new(min_confirmations.into()).expect("it is at least 1"),
            interval: environment.duration(RECONCILE_INTERVAL, secs(5), ms(10)..=secs(3600))?,
            lease,
            batch: environment.number(RECONCILE_BATCH, 50, 1..=1_000)?,
            webhooks_enabled: webhooks_enabled(environment)?,
        })
    }
}

/// What `payments webhook-dispatcher` needs.
#[derive(Debug)]
pub(crate) struct DispatcherConfig {
    pub(crate) worker: WorkerId,
    pub(crate) secret: Secret,
    pub(crate) destinations: DestinationPolicy,
    pub(crate) lease: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) enabled: bool,
}

impl DispatcherConfig {
    pub(crate) fn read(environment: &Environment) -> Result<Self> {
        let secret = environment.required(HMAC_SECRET, "nothing goes out unsigned; it has 16 to 256 bytes")?;
        let lease = environment.duration(WEBHOOK_LEASE, secs(30), Duration::ZERO..=secs(3600))?;
        LeaseTerm::new(lease).map_err(|error| invalid(WEBHOOK_LEASE, error))?;
        let initial = environment.duration(WEBHOOK_RETRY_INITIAL, secs(5), ms(1)..=secs(86_400))?;
        let max = environment.duration(WEBHOOK_RETRY_MAX, secs(300), ms(1)..=secs(86_400))?;
        if max < initial {
            return Err(invalid(WEBHOOK_RETRY_MAX, format!("shorter than {WEBHOOK_RETRY_INITIAL}")));
        }
        let max_attempts = environment.number(WEBHOOK_MAX_ATTEMPTS, 8, 1..=1_000)?;
        let retry_policy = RetryPolicy::exponential(initial, 2.0, max, max_attempts);
        Ok(Self {
            worker: worker(environment)?,
            secret: Secret::parse(secret).map_err(|error| invalid(HMAC_SECRET, error))?,
            destinations: destinations(environment)?,
            lease,
            poll_interval: environment.duration(WEBHOOK_POLL_INTERVAL, secs(1), ms(10)..=secs(3600))?,
            timeout: environment.duration(WEBHOOK_TIMEOUT, secs(10), ms(1)..=secs(3600))?,
            drain_timeout: environment.duration(WEBHOOK_DRAIN_TIMEOUT, secs(30), Duration::ZERO..=secs(86_400))?,
            retry_policy: retry_policy.map_err(|refusal| invalid(WEBHOOK_RETRY_MAX, refusal))?,
            enabled: webhooks_enabled(environment)?,
        })
    }
}

fn worker(environment: &Environment) -> Result<WorkerId> {
    match environment.text(WORKER_ID)? {
        None => Ok(WorkerId::random()),
        Some(name) => WorkerId::new(name).map_err(|error| invalid(WORKER_ID, error)),
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The variables of this process. A variable that is set to nothing counts as missing.
#[derive(Debug)]
pub(crate) struct Environment(HashMap<String, Option<String>>);

impl Environment {
    pub(crate) fn of_process() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()))
        };
        Self(std::env::vars_os().filter_map(utf8).collect())
    }

    pub(crate) fn text(&self, variable: &'static str) -> Result<Option<&str>> {
        match self.0.get(variable) {
            None => Ok(None),
            Some(None) => Err(invalid(variable, "not UTF-8")),
            Some(Some(value)) => Ok(Some(value.trim()).filter(|value| !value.is_empty())),
        }
    }

    fn required(&self, variable: &'static str, why: &str) -> Result<&str> {
        self.text(variable)?.ok_or_else(|| invalid(variable, format!("not set; {why}")))
    }

    fn duration(&self, variable: &'static str, default: Duration, range: RangeInclusive<Duration>) -> Result<Duration> {
        let Some(text) = self.text(variable)? else { return Ok(default) };
        let value = duration::parse(text).map_err(|problem| invalid(variable, format!("`{text}` is {problem}")))?;
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = (duration::format(*range.start()), duration::format(*range.end()));
        Err(invalid(variable, format!("`{text}` is not from {least} to {most}")))
    }

    fn number(&self, variable: &'static str, default: u32, range: RangeInclusive<u32>) -> Result<u32> {
        let Some(text) = self.text(variable)? else { return Ok(default) };
        let value = text.parse().ok().filter(|value| range.contains(value));
        let problem = || format!("`{text}` is not a whole number from {} to {}", range.start(), range.end());
        value.ok_or_else(|| invalid(variable, problem()))
    }

    fn flag(&self, variable: &'static str, default: bool) -> Result<bool> {
        match self.text(variable)? {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(text) => Err(invalid(variable, format!("`{text}` is neither `true` nor `false`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for every runtime.
    fn environment(changes: &[(&str, &str)]) -> Environment {
        let enough = [
            (DATABASE_URL, "postgres://localhost/payments"),
            (ALLOWED_HOSTS, "good.com, *.good.com"),
            (HMAC_SECRET, "a secret of enough bytes"),
            (RPC_URL, "http://127.0.0.1:8545"),
        ];
        let all = enough.iter().chain(changes);
        Environment(all.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect())
    }

    fn complaint(environment: &Environment) -> Option<&'static str> {
        let complaints = [
            database_url(environment).err(),
            ServerConfig::read(environment).err(),
            ReconcilerConfig::read(environment).err(),
            DispatcherConfig::read(environment).err(),
        ];
        complaints.into_iter().flatten().next().map(|error| error.variable)
    }

    #[test]
    fn what_is_enough_is_enough_and_has_the_documented_defaults() {
        let environment = environment(&[]);
        assert_eq!(complaint(&environment), None);
        let dispatcher = DispatcherConfig::read(&environment).unwrap();
        assert_eq!(dispatcher.retry_policy.max_attempts(), 8);
        let delays: Vec<u64> = dispatcher.retry_policy.delays().map(|delay| delay.as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300], "exponential within its bounds");
        assert!(dispatcher.enabled);
        assert_eq!(ReconcilerConfig::read(&environment).unwrap().min_confirmations.get(), 3);
    }

    #[test]
    fn a_value_that_cannot_hold_is_refused_under_its_name() {
        for (variable, value) in [
            (DATABASE_URL, "mysql://localhost"),
            (DATABASE_URL, " "),
            (LISTEN, "8080"),
            (ALLOWED_HOSTS, ","),
            (ALLOWED_HOSTS, "http://good.com/"),
            (ALLOWED_NETWORKS, "10.0.0.0/99"),
            (WEBHOOKS_ENABLED, "yes"),
            (HMAC_SECRET, "short"),
            (RPC_URL, "ftp://node"),
            (RPC_URL, "node:8545"),
            (RPC_TIMEOUT, "5"),
            (MIN_CONFIRMATIONS, "0"),
            (MIN_CONFIRMATIONS, "-1"),
            (RECONCILE_INTERVAL, "0s"),
            (RECONCILE_LEASE, "10s"),
            (RECONCILE_BATCH, "0"),
            (RECONCILE_IN_SERVER, "1"),
            (WEBHOOK_LEASE, "2h"),
            (WEBHOOK_POLL_INTERVAL, "1ms"),
            (WEBHOOK_TIMEOUT, "soon"),
            (WEBHOOK_MAX_ATTEMPTS, "0"),
            (WEBHOOK_RETRY_INITIAL, "0s"),
            (WEBHOOK_RETRY_MAX, "1s"),
            (WEBHOOK_DRAIN_TIMEOUT, "1y"),
            (WORKER_ID, "two words"),
        ] {
            assert_eq!(complaint(&environment(&[(variable, value)])), Some(variable), "{variable}={value}");
        }
    }

    #[test]
    fn doc_001_fr_003_ac3_a_lease_without_a_valid_heartbeat_is_refused_under_its_name() {
        for lease in ["0s", "1ms", "100ms"] {
            let error = DispatcherConfig::read(&environment(&[(WEBHOOK_LEASE, lease)])).unwrap_err();
            assert_eq!(error.variable, WEBHOOK_LEASE);
            assert!(error.problem.starts_with("lease_too_short"), "{error}");
        }
        assert!(DispatcherConfig::read(&environment(&[(WEBHOOK_LEASE, "101ms")])).is_ok());
    }

    #[test]
    fn no_message_repeats_a_secret() {
        for (variable, value) in
            [(HMAC_SECRET, "whsec_canary%"), (DATABASE_URL, "canary://u:p@h"), (RPC_URL, "ws://node/canary")]
        {
            let environment = environment(&[(variable, value)]);
            let errors = [
                database_url(&environment).err(),
                ReconcilerConfig::read(&environment).err(),
                DispatcherConfig::read(&environment).err(),
            ];
            let text = errors.into_iter().flatten().map(|error| error.to_string()).collect::<String>();
            assert!(text.contains(variable) && !text.contains("canary"), "{text}");
        }
    }
}
