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
    Admission, DestinationPolicy, KeyToken, LeaseTerm, Refusal, RetryPolicy, Secret, SignatureScheme, WorkerId,
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
    pub(crate) worker_id: Option<WorkerId>,
    pub(crate) lease: LeaseTerm,
    pub(crate) poll_interval: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) max_in_flight_per_destination: u32,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) kept_response_bytes: usize,
    pub(crate) admission: Admission,
    pub(crate) signing_secret: Option<Secret>,
    pub(crate) signature: SignatureScheme,
    pub(crate) drain_timeout: Duration,
    pub(crate) max_abandoned: u32,
    pub(crate) dispatch_enabled: bool,
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
        // Nothing here listens or encrypts yet, but a file that is shared with the server must not hide a mistake.
        reading.required(Key::Listen, |written| Ok(show(value::socket_address(written)?, SocketAddr::to_string)))?;
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
        let retry_policy = retry_policy(reading)?;
        let max_payload_bytes = reading.number(Key::MaxPayloadBytes, 1, 1 << 30)?;
        let kept_response_bytes = reading.number(Key::KeptResponseBytes, 0, 1 << 20)?;
        let admission = Admission { destinations: destinations(reading)?, max_payload_bytes, bare_destinations: true };
        let signing_secret = secret(reading, Key::SigningSecret)?;
        let signature = signature(reading)?;
        secret(reading, Key::SecretKey)?;
        reading.duration(Key::Retention, hour, Duration::from_hours(100 * 365 * 24))?;
        let drain_timeout = reading.duration(Key::DrainTimeout, Duration::ZERO, 24 * hour)?;
        let max_abandoned = reading.number(Key::MaxAbandoned, 1, 1_000)?;
        let dispatch_enabled =
            reading.required(Key::DispatchEnabled, |written| Ok(show(value::truth(written)?, bool::to_string)))?;
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
            worker_id,
            lease,
            poll_interval,
            max_in_flight,
            max_in_flight_per_destination,
            timeout,
            connect_timeout,
            retry_policy,
            kept_response_bytes,
            admission,
            signing_secret,
            signature,
            drain_timeout,
            max_abandoned,
            dispatch_enabled,
            log_format,
            server,
            api_key,
            effective: std::mem::take(&mut reading.effective),
        })
    }
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

fn secret(reading: &mut Reading, key: Key) -> Result<Option<Secret>, Failure> {
    reading.optional(key, |written| {
        let secret = Secret::parse(&value::text(written)?).map_err(|error| error.to_string())?;
        Ok(("****".to_owned(), secret))
    })
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
        _ if key.is_secret() => failure.hint("`postrider sign --new-secret` makes a good one"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests;
