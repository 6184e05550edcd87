//! The configuration: `postrider.toml`, overridden by `POSTRIDER_*` variables, overridden by flags.
//!
//! Everything is checked whenever anything is read, whether or not the command at hand needs it: a value that cannot
//! hold is found by the first command, not by the dispatcher at night.

mod key;
mod layers;
mod value;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use postrider::signature::{HeaderPrefix, Signed};
use postrider::{
    Admission, DestinationPolicy, KeyToken, LeaseTerm, Refusal, RetryPolicy, Secret, SecretKey, SignatureScheme,
    WorkerId,
};
use url::Url;

pub(crate) use self::key::Key;
pub(crate) use self::layers::{Flags, Source};
use self::layers::{Layers, Written};
use self::value::Reason;
use crate::database::Database;
use crate::failure::{Exit, Failure};
use postrider::duration;

/// What all commands work by.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) listen: SocketAddr,
    pub(crate) worker_id: Option<WorkerId>,
    pub(crate) lease: LeaseTerm,
    pub(crate) poll_interval: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) max_in_flight_per_destination: u32,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Empty for the system's.
    pub(crate) name_servers: Vec<SocketAddr>,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) kept_response_bytes: usize,
    pub(crate) admission: Admission,
    /// For bare destinations, the newest first; empty when nothing goes to any.
    pub(crate) signing_secrets: Vec<Secret>,
    pub(crate) signature: SignatureScheme,
    /// As configured: the first seals, all open. Empty is not yet the end: an SQLite file has a key beside it.
    pub(crate) secret_keys: Vec<SecretKey>,
    /// None keeps everything.
    pub(crate) retention: Option<Duration>,
    /// None never disables.
    pub(crate) disable_after: Option<Duration>,
    pub(crate) drain_timeout: Duration,
    pub(crate) max_abandoned: u32,
    pub(crate) dispatch_enabled: bool,
    pub(crate) max_connections: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) trust_forwarded_proto: bool,
    pub(crate) log_format: Option<LogFormat>,
    /// The server that client commands ask; without it they work on the database.
    pub(crate) server: Option<Url>,
    /// The key that they show it.
    pub(crate) api_key: Option<KeyToken>,
    effective: Vec<Effective>,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object per line.
    Json,
}

/// One key as it holds: for `postrider config`.
#[derive(Debug, Clone)]
pub(crate) struct Effective {
    /// Which key.
    pub(crate) key: Key,
    /// Its value in the form of a variable, masked where it is secret; none where nothing holds.
    pub(crate) shown: Option<String>,
    /// Where it came from.
    pub(crate) source: Source,
}

impl Config {
    /// The configuration of this process: this file or else `postrider.toml`, the environment, and these flags.
    pub(crate) fn load(file: Option<&Path>, flags: Flags) -> Result<Self, Failure> {
        Self::resolve(&mut Reading::new(Layers::gather(file, std::env::vars_os(), flags)?))
    }

    /// Every key with its value and where that came from.
    pub(crate) fn effective(&self) -> &[Effective] {
        &self.effective
    }

    fn resolve(reading: &mut Reading) -> Result<Self, Failure> {
        let ms = Duration::from_millis;
        let hour = Duration::from_hours(1);
        let database = reading.required(Key::Database, |written| {
            let database = Database::parse(&value::text(written)?)?;
            Ok((database.to_string(), database))
        })?;
        let listen = reading
            .required(Key::Listen, |written| Ok(show(value::socket_address(written)?, SocketAddr::to_string)))?;
        let worker_id = reading.optional(Key::WorkerId, |written| {
            let worker = WorkerId::new(value::text(written)?).map_err(|error| error.to_string())?;
            Ok((worker.to_string(), worker))
        })?;
        let lease = reading.required(Key::Lease, |written| {
            let term = LeaseTerm::new(value::one_duration(written)?).map_err(|error| error.to_string())?;
            Ok((duration::format(term.lease()), term))
        })?;
        let poll_interval = reading.duration(Key::PollInterval, ms(10), hour)?;
        let max_in_flight = reading.number(Key::MaxInFlight, 1, 100_000)?;
        let max_in_flight_per_destination = reading.number(Key::MaxInFlightPerDestination, 1, 100_000)?;
        let timeout = reading.duration(Key::Timeout, ms(1), hour)?;
        let connect_timeout = reading.duration(Key::ConnectTimeout, ms(1), hour)?;
        let name_servers = name_servers(reading)?;
        let retry_policy = retry_policy(reading)?;
        let max_payload_bytes = reading.number(Key::MaxPayloadBytes, 1, 1 << 30)?;
        let kept_response_bytes = reading.number(Key::KeptResponseBytes, 0, 1 << 20)?;
        let destinations = destinations(reading)?;
        let signing_secrets = signing_secrets(reading)?;
        // Nothing is ever sent unsigned.
        let admission = Admission { destinations, max_payload_bytes, bare_destinations: !signing_secrets.is_empty() };
        let signature = signature(reading)?;
        let secret_keys = secret_keys(reading)?;
        let century = Duration::from_hours(100 * 365 * 24);
        let retention = reading.duration_or_never(Key::Retention, hour, century)?;
        let disable_after = reading.duration_or_never(Key::DisableAfter, Duration::from_mins(1), century)?;
        let drain_timeout = reading.duration(Key::DrainTimeout, Duration::ZERO, 24 * hour)?;
        let max_abandoned = reading.number(Key::MaxAbandoned, 1, 1_000)?;
        let dispatch_enabled =
            reading.required(Key::DispatchEnabled, |written| Ok(show(value::truth(written)?, bool::to_string)))?;
        let max_connections = reading.number(Key::MaxConnections, 1, 1_000_000)?;
        let request_timeout = reading.duration(Key::RequestTimeout, ms(100), hour)?;
        let trust_forwarded_proto =
            reading.required(Key::TrustForwardedProto, |written| Ok(show(value::truth(written)?, bool::to_string)))?;
        let log_format = reading.optional(Key::LogFormat, |written| match value::text(written)?.as_str() {
            "pretty" => Ok(("pretty".to_owned(), LogFormat::Pretty)),
            "json" => Ok(("json".to_owned(), LogFormat::Json)),
            _ => Err("it must be pretty or json".to_owned()),
        })?;
        let server = reading.optional(Key::Server, |written| {
            let url = value::server_url(written)?;
            Ok((url.to_string(), url))
        })?;
        let api_key = reading.optional(Key::ApiKey, |written| {
            let key = KeyToken::parse(&value::text(written)?);
            Ok(("****".to_owned(), key.ok_or("a key begins with `prk_` and is as long as it was when it was shown")?))
        })?;
        // Whoever names a database means it, whatever server the environment or the file has.
        let database_was_meant = reading.source(Key::Database).strength() > reading.source(Key::Server).strength();
        let server = server.filter(|_| !database_was_meant);
        Ok(Self {
            database,
            listen,
            worker_id,
            lease,
            poll_interval,
            max_in_flight,
            max_in_flight_per_destination,
            timeout,
            connect_timeout,
            name_servers,
            retry_policy,
            kept_response_bytes,
            admission,
            signing_secrets,
            signature,
            secret_keys,
            retention,
            disable_after,
            drain_timeout,
            max_abandoned,
            dispatch_enabled,
            max_connections,
            request_timeout,
            trust_forwarded_proto,
            log_format,
            server,
            api_key,
            effective: std::mem::take(&mut reading.effective),
        })
    }
}

fn name_servers(reading: &mut Reading) -> Result<Vec<SocketAddr>, Failure> {
    let servers = reading.optional(Key::NameServers, |written| {
        let servers =
            value::list(written)?.iter().map(|text| value::name_server(text)).collect::<Result<Vec<_>, _>>()?;
        Ok((servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","), servers))
    })?;
    Ok(servers.unwrap_or_default())
}

fn retry_policy(reading: &mut Reading) -> Result<RetryPolicy, Failure> {
    let delays = reading.required(Key::RetrySchedule, |written| {
        let delays = value::durations(written)?;
        let shown = delays.iter().map(|delay| duration::format(*delay)).collect::<Vec<_>>().join(",");
        Ok((shown, delays))
    })?;
    let max_attempts = reading.number(Key::MaxAttempts, 1, postrider::retry::MAX_ATTEMPTS)?;
    let jitter = reading
        .required(Key::RetryJitter, |written| Ok(show(value::number_within(written, 0.0, 1.0)?, f64::to_string)))?;
    let policy = RetryPolicy::schedule(delays, max_attempts).and_then(|policy| policy.with_jitter(jitter));
    policy.map_err(|refusal| reading.refused(Key::RetrySchedule, refusal))
}

fn destinations(reading: &mut Reading) -> Result<DestinationPolicy, Failure> {
    let hosts = reading.required(Key::AllowedHosts, |written| {
        let hosts = value::list(written)?;
        DestinationPolicy::default().allow_hosts(&hosts).map_err(in_one_line)?;
        Ok((hosts.join(","), hosts))
    })?;
    let networks = reading.required(Key::AllowedNetworks, |written| {
        let networks = value::list(written)?;
        DestinationPolicy::default().allow_networks(&networks).map_err(in_one_line)?;
        Ok((networks.join(","), networks))
    })?;
    let https = reading.required(Key::RequireHttps, |written| Ok(show(value::truth(written)?, bool::to_string)))?;
    let policy = DestinationPolicy::default();
    let policy = policy.allow_hosts(&hosts).and_then(|policy| policy.allow_networks(&networks));
    Ok(policy.map_err(|refusal| reading.refused(Key::AllowedHosts, refusal))?.require_https(https))
}

/// Several while receivers change over, the newest first.
///
/// A plain secret may contain commas, so a text is a list only if each of its parts says that it is a secret.
fn signing_secrets(reading: &mut Reading) -> Result<Vec<Secret>, Failure> {
    let secrets = reading.optional(Key::SigningSecret, |written| {
        let texts = match written {
            Written::Text(text) if !text.split(',').all(|part| part.trim().starts_with("whsec_")) => {
                vec![value::text(written)?]
            }
            list => value::list(list)?,
        };
        let secrets = texts.iter().map(|text| Secret::parse(text).map_err(|error| error.to_string()));
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        Ok((masks(secrets.len()), secrets))
    })?;
    Ok(secrets.unwrap_or_default())
}

/// Several while secrets are encrypted anew; the first seals, all open.
fn secret_keys(reading: &mut Reading) -> Result<Vec<SecretKey>, Failure> {
    let keys = reading.optional(Key::SecretKey, |written| {
        let keys = value::list(written)?;
        let keys = keys.iter().map(|text| SecretKey::parse(text).map_err(|error| error.to_string()));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err("it is empty".to_owned()) } else { Ok((masks(keys.len()), keys)) }
    })?;
    Ok(keys.unwrap_or_default())
}

/// As many masks as there are secrets: how many there are is no secret.
fn masks(count: usize) -> String {
    vec!["****"; count].join(",")
}

fn signature(reading: &mut Reading) -> Result<SignatureScheme, Failure> {
    let name = reading.required(Key::Signature, |written| {
        let name = value::text(written)?;
        if SignatureScheme::NAMES.contains(&name.as_str()) {
            Ok((name.clone(), name))
        } else {
            Err(format!("it must be {}", SignatureScheme::NAMES.join(" or ")))
        }
    })?;
    let prefix = reading.optional(Key::HeaderPrefix, |written| {
        let prefix: HeaderPrefix = value::text(written)?.parse().map_err(in_one_line)?;
        Ok((prefix.to_string(), prefix))
    })?;
    let signed = reading.optional(Key::Signed, |written| {
        let signed: Signed = value::text(written)?.parse().map_err(in_one_line)?;
        Ok((signed.to_string(), signed))
    })?;
    if name == SignatureScheme::Standard.name() {
        // A stronger source may choose the standard scheme over a file that describes the other one; the same
        // source, or a stronger one, that describes what is not in use is a mistake.
        for key in [Key::HeaderPrefix, Key::Signed] {
            if reading.is_set(key) && reading.source(key).strength() >= reading.source(Key::Signature).strength() {
                let message = format!("{key} ({}) has no meaning with signature = `standard`", reading.source(key));
                return Err(Failure::new(Exit::Refused, "config_value_invalid", message)
                    .hint("leave it out, or set signature to `hmac-sha256-hex`"));
            }
        }
        return Ok(SignatureScheme::Standard);
    }
    Ok(SignatureScheme::HmacSha256Hex { header_prefix: prefix.unwrap_or_default(), signed: signed.unwrap_or_default() })
}

fn in_one_line(refusal: Refusal) -> Reason {
    match refusal.hint {
        Some(hint) => format!("{}; {hint}", refusal.detail),
        None => refusal.detail,
    }
}

/// A value after the text to show for it.
fn show<T>(value: T, text: impl Fn(&T) -> String) -> (String, T) {
    (text(&value), value)
}

/// The layers while they are being read: remembers what came out, key by key.
struct Reading {
    layers: Layers,
    effective: Vec<Effective>,
}

impl Reading {
    fn new(layers: Layers) -> Self {
        Self { layers, effective: Vec::with_capacity(Key::ALL.len()) }
    }

    /// A value that always holds. `parse` gives the text to show and the value.
    fn required<T>(&mut self, key: Key, parse: impl Fn(&Written) -> Result<(String, T), Reason>) -> Result<T, Failure> {
        let value = self.optional(key, parse)?;
        Ok(value.expect("a key that is required has a default"))
    }

    /// A value that may be absent.
    fn optional<T>(
        &mut self,
        key: Key,
        parse: impl Fn(&Written) -> Result<(String, T), Reason>,
    ) -> Result<Option<T>, Failure> {
        let default = || key.default_text().map(|text| (Written::Text(text.to_owned()), Source::Default));
        let Some((written, source)) = self.layers.values.get(&key).cloned().or_else(default) else {
            self.effective.push(Effective { key, shown: None, source: Source::Default });
            return Ok(None);
        };
        match parse(&written) {
            Ok((shown, value)) => {
                self.effective.push(Effective { key, shown: Some(shown), source });
                Ok(Some(value))
            }
            Err(reason) => Err(invalid(key, &written, &source, &reason)),
        }
    }

    fn duration(&mut self, key: Key, least: Duration, most: Duration) -> Result<Duration, Failure> {
        self.required(key, |written| {
            Ok(show(value::duration_within(written, least, most)?, |duration| duration::format(*duration)))
        })
    }

    fn duration_or_never(&mut self, key: Key, least: Duration, most: Duration) -> Result<Option<Duration>, Failure> {
        self.required(key, |written| match written {
            Written::Text(text) if text.trim() == "never" => Ok(("never".to_owned(), None)),
            written => {
                let duration = value::duration_within(written, least, most);
                let duration = duration.map_err(|reason| format!("{reason}; or never"))?;
                Ok((duration::format(duration), Some(duration)))
            }
        })
    }

    fn number<T>(&mut self, key: Key, least: T, most: T) -> Result<T, Failure>
    where
        T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        self.required(key, |written| Ok(show(value::number_within(written, least, most)?, T::to_string)))
    }

    fn is_set(&self, key: Key) -> bool {
        self.layers.values.contains_key(&key)
    }

    fn source(&self, key: Key) -> Source {
        self.layers.values.get(&key).map_or(Source::Default, |(_, source)| source.clone())
    }

    /// A relation between keys that does not hold, told with the key it is about.
    fn refused(&self, key: Key, refusal: Refusal) -> Failure {
        let source = self.source(key);
        let failure =
            Failure::new(Exit::Refused, "config_value_invalid", format!("{key} ({source}): {}", refusal.detail));
        match refusal.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn invalid(key: Key, written: &Written, source: &Source, reason: &str) -> Failure {
    let text = match written {
        Written::Text(text) | Written::Bare(text) => text.clone(),
        Written::List(items) => items.join(","),
    };
    // A database URL may hold a password, also one that cannot be parsed.
    let shown =
        if key.is_secret() || key == Key::Database { "****".to_owned() } else { crate::output::plain(&text, 100) };
    let failure = Failure::new(
        Exit::Refused,
        "config_value_invalid",
        format!("{key} = `{shown}` ({source}) is refused: {}", crate::output::plain(reason, 1_000)),
    );
    match key.default_text() {
        Some(default) if !default.is_empty() => failure.hint(format!("the default is `{default}`")),
        _ if key == Key::ApiKey => failure.hint("an admin makes one with `postrider keys create`"),
        _ if key == Key::SecretKey => failure.hint("`postrider config --new-secret-key` makes one"),
        _ if key.is_secret() => failure.hint("`postrider sign --new-secret` makes a good one"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests;
