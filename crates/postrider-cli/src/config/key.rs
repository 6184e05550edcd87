//! Every key of the configuration: its name, its default, and what it means.

use std::fmt;

/// A key of `postrider.toml`. Its variable is the name in upper case after `POSTRIDER_`, its flag the name with dashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::enum_variant_names, reason = "`secret_key` is its name in files")]
pub(crate) enum Key {
    Database,
    Listen,
    WorkerId,
    Lease,
    PollInterval,
    MaxInFlight,
    MaxInFlightPerDestination,
    Timeout,
    ConnectTimeout,
    NameServers,
    RetrySchedule,
    MaxAttempts,
    RetryJitter,
    MaxPayloadBytes,
    KeptResponseBytes,
    AllowedHosts,
    AllowedNetworks,
    RequireHttps,
    SigningSecret,
    Signature,
    HeaderPrefix,
    Signed,
    SecretKey,
    Retention,
    DisableAfter,
    DrainTimeout,
    MaxAbandoned,
    DispatchEnabled,
    MaxConnections,
    RequestTimeout,
    TrustForwardedProto,
    LogFormat,
    Server,
    ApiKey,
}

impl Key {
    /// Every key, in the order in which they are documented and printed.
    pub(crate) const ALL: [Self; 34] = [
        Self::Database,
        Self::Listen,
        Self::WorkerId,
        Self::Lease,
        Self::PollInterval,
        Self::MaxInFlight,
        Self::MaxInFlightPerDestination,
        Self::Timeout,
        Self::ConnectTimeout,
        Self::NameServers,
        Self::RetrySchedule,
        Self::MaxAttempts,
        Self::RetryJitter,
        Self::MaxPayloadBytes,
        Self::KeptResponseBytes,
        Self::AllowedHosts,
        Self::AllowedNetworks,
        Self::RequireHttps,
        Self::SigningSecret,
        Self::Signature,
        Self::HeaderPrefix,
        Self::Signed,
        Self::SecretKey,
        Self::Retention,
        Self::DisableAfter,
        Self::DrainTimeout,
        Self::MaxAbandoned,
        Self::DispatchEnabled,
        Self::MaxConnections,
        Self::RequestTimeout,
        Self::TrustForwardedProto,
        Self::LogFormat,
        Self::Server,
        Self::ApiKey,
    ];

    /// Its name in a file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Listen => "listen",
            Self::WorkerId => "worker_id",
            Self::Lease => "lease",
            Self::PollInterval => "poll_interval",
            Self::MaxInFlight => "max_in_flight",
            Self::MaxInFlightPerDestination => "max_in_flight_per_destination",
            Self::Timeout => "timeout",
            Self::ConnectTimeout => "connect_timeout",
            Self::NameServers => "name_servers",
            Self::RetrySchedule => "retry_schedule",
            Self::MaxAttempts => "max_attempts",
            Self::RetryJitter => "retry_jitter",
            Self::MaxPayloadBytes => "max_payload_bytes",
            Self::KeptResponseBytes => "kept_response_bytes",
            Self::AllowedHosts => "allowed_hosts",
            Self::AllowedNetworks => "allowed_networks",
            Self::RequireHttps => "require_https",
            Self::SigningSecret => "signing_secret",
            Self::Signature => "signature",
            Self::HeaderPrefix => "header_prefix",
            Self::Signed => "signed",
            Self::SecretKey => "secret_key",
            Self::Retention => "retention",
            Self::DisableAfter => "disable_after",
            Self::DrainTimeout => "drain_timeout",
            Self::MaxAbandoned => "max_abandoned",
            Self::DispatchEnabled => "dispatch_enabled",
            Self::MaxConnections => "max_connections",
            Self::RequestTimeout => "request_timeout",
            Self::TrustForwardedProto => "trust_forwarded_proto",
            Self::LogFormat => "log_format",
            Self::Server => "server",
            Self::ApiKey => "api_key",
        }
    }

    /// The text that means the default; none where the default is not a fixed value.
    pub(crate) const fn default_text(self) -> Option<&'static str> {
        Some(match self {
            Self::Database => "sqlite://postrider.db",
            Self::Listen => "127.0.0.1:8400",
            Self::Lease | Self::DrainTimeout => "30s",
            Self::PollInterval => "1s",
            Self::MaxInFlight => "512",
            Self::MaxInFlightPerDestination => "64",
            Self::Timeout => "15s",
            Self::ConnectTimeout => "5s",
            Self::RetrySchedule => "30s,2m,10m,1h,6h",
            Self::MaxAttempts => "5",
            Self::RetryJitter => "0",
            Self::MaxPayloadBytes => "262144",
            Self::KeptResponseBytes | Self::MaxConnections => "4096",
            Self::AllowedHosts | Self::AllowedNetworks => "",
            Self::RequireHttps | Self::TrustForwardedProto => "false",
            Self::Signature => "standard",
            Self::Retention => "30d",
            Self::DisableAfter => "5d",
            Self::RequestTimeout => "1m",
            Self::MaxAbandoned => "10",
            Self::DispatchEnabled => "true",
            Self::WorkerId
            | Self::NameServers
            | Self::SigningSecret
            | Self::HeaderPrefix
            | Self::Signed
            | Self::SecretKey
            | Self::LogFormat
            | Self::Server
            | Self::ApiKey => return None,
        })
    }

    /// What holds when nothing is set and there is no fixed default.
    pub(crate) const fn when_unset(self) -> &'static str {
        match self {
            Self::WorkerId => "(host name and a random part, new at each start)",
            Self::NameServers => "(the system's: /etc/hosts and /etc/resolv.conf)",
            Self::HeaderPrefix => "(X-Webhook- with hmac-sha256-hex)",
            Self::Signed => "(timestamp.body with hmac-sha256-hex)",
            Self::SecretKey => "(generated beside an SQLite file; required on Postgres)",
            Self::Server => "(none: client commands work on the database)",
            Self::LogFormat => "(pretty on a terminal, json otherwise)",
            _ => "(none)",
        }
    }

    /// Whether its value must never be shown.
    pub(crate) const fn is_secret(self) -> bool {
        matches!(self, Self::SigningSecret | Self::SecretKey | Self::ApiKey)
    }

    /// Its variable.
    pub(crate) fn variable(self) -> String {
        format!("POSTRIDER_{}", self.name().to_ascii_uppercase())
    }

    /// Its flag, on the commands that have it.
    pub(crate) fn flag(self) -> String {
        format!("--{}", self.name().replace('_', "-"))
    }

    /// The key of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// The key whose name is closest to this one, if any is close.
    pub(crate) fn nearest(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('-', "_");
        let (distance, key) = Self::ALL.into_iter().map(|key| (edits(&name, key.name()), key)).min()?;
        (distance <= name.len().div_ceil(3)).then_some(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many letters must be added, removed or replaced to turn one name into the other.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once_and_found_by_its_name() {
        for (index, key) in Key::ALL.into_iter().enumerate() {
            assert_eq!(key as usize, index, "{key}");
            assert_eq!(Key::named(key.name()), Some(key));
        }
    }

    #[test]
    fn a_misspelt_key_has_a_nearest_one() {
        assert_eq!(Key::nearest("leese"), Some(Key::Lease));
        assert_eq!(Key::nearest("max-in-flight"), Some(Key::MaxInFlight));
        assert_eq!(Key::nearest("signing_secrets"), Some(Key::SigningSecret));
        assert_eq!(Key::nearest("colour_of_the_sky"), None);
    }
}
