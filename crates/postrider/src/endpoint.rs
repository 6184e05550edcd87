//! Endpoints: registered receivers.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::event::check_event_type;
use crate::ids::EndpointId;
use crate::keyring::{Keyring, KeyringError};
use crate::rate_limit::RateLimit;
use crate::refusal::Refusal;
use crate::retry::RetryPolicy;
use crate::secret::Secret;
use crate::signature::SignatureScheme;

/// Which event types an endpoint wants: `*` is everything, `invoice.*` everything below `invoice.`, otherwise exact.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventTypePattern(String);

impl EventTypePattern {
    /// Whether events of this type are wanted.
    pub fn matches(&self, event_type: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => event_type.len() > prefix.len() && event_type.starts_with(prefix),
            None => self.0 == event_type,
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventTypePattern {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text != "*" {
            let stem = text.strip_suffix(".*").unwrap_or(text);
            check_event_type(stem).map_err(|refusal| Refusal {
                code: "event_type_pattern_invalid",
                field: "event_types",
                hint: Some("use `*`, `invoice.*` or an exact type such as `invoice.paid`".to_owned()),
                ..refusal
            })?;
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for EventTypePattern {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<EventTypePattern> for String {
    fn from(pattern: EventTypePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for EventTypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether an endpoint's deliveries are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointStatus {
    /// They are.
    Active,
    /// An operator holds them back; new ones keep coming in and wait.
    Paused,
    /// The receiver said that it is gone: what is there waits, and new events pass it by.
    Disabled,
}

impl EndpointStatus {
    /// Its name, in SQL and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
        }
    }
}

impl FromStr for EndpointStatus {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        [Self::Active, Self::Paused, Self::Disabled].into_iter().find(|status| status.as_str() == text).ok_or_else(
            || {
                Refusal::new(
                    "endpoint_status_invalid",
                    "status",
                    format!("`{}` is not an endpoint status", text.escape_default()),
                )
            },
        )
    }
}

/// A receiver to be registered.
#[derive(Debug, Clone)]
pub struct NewEndpoint {
    /// Whose it is.
    pub tenant: String,
    /// Where it is; vetted.
    pub url: Destination,
    /// What it wants.
    pub event_types: Vec<EventTypePattern>,
    /// How to treat it.
    pub settings: EndpointSettings,
}

/// How an endpoint wants to be treated. What is not given is the dispatcher's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EndpointSettings {
    /// Each signs, the newest first.
    pub secrets: Vec<Secret>,
    /// Sign as well, until their time is over: what a rotation has replaced.
    pub retiring: Vec<RetiringSecret>,
    /// How it is signed.
    pub signature: Option<SignatureScheme>,
    /// When to try again.
    pub retry_policy: Option<RetryPolicy>,
    /// At most this many at a time, from all dispatchers together.
    pub max_in_flight: Option<NonZeroU32>,
    /// At most this often, from all dispatchers together.
    pub rate_limit: Option<RateLimit>,
    /// For one whole POST.
    pub timeout: Option<Duration>,
    /// Sent with every attempt.
    pub headers: Vec<(String, String)>,
    /// For people.
    pub description: String,
}

/// A secret that has been replaced, and signs beside its successor for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetiringSecret {
    /// The secret.
    pub secret: Secret,
    /// Until when, by the database's clock.
    pub until: Timestamp,
}

/// Which endpoints to look at; what is not given does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointFilter {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// In this status.
    pub status: Option<EndpointStatus>,
}

/// A registered receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: String,
    /// Where it is.
    pub url: String,
    /// What it wants.
    pub event_types: Vec<EventTypePattern>,
    /// Whether its deliveries are made.
    pub status: EndpointStatus,
    /// Why it is paused or disabled.
    pub status_reason: Option<String>,
    /// How to treat it.
    pub settings: EndpointSettings,
    /// Why the settings cannot be read, if they cannot: damaged, or encrypted with another key. They are the defaults then,
    /// without a secret, and nothing may be sent.
    pub trouble: Option<String>,
    /// Counts what operators changed; an update names the one that it is based on.
    pub revision: u64,
    /// When the first of the failures in a row began that no success has ended.
    pub failing_since: Option<Timestamp>,
    /// When it was registered.
    pub created_at: Timestamp,
}

impl Endpoint {
    /// Whether it cannot be read only because this process lacks its key: others may well have it.
    pub fn lacks_our_key(&self) -> bool {
        // Trouble begins with its code, as all that is told does.
        self.trouble.as_deref().is_some_and(|trouble| trouble.starts_with("secret_key_"))
    }
}

/// [`EndpointSettings`] as stores keep them: one JSON text, the same in every dialect, in which secrets are sealed, and so
/// are the values of headers, which often are credentials. A field
/// that is not known was written by a newer program beside this one, which must not keep this one from claiming.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSettings {
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    retiring: Vec<StoredRetiring>,
    #[serde(default)]
    signature: Option<SignatureScheme>,
    #[serde(default)]
    retry_policy: Option<RetryPolicy>,
    #[serde(default)]
    max_in_flight: Option<NonZeroU32>,
    #[serde(default)]
    rate_limit: Option<RateLimit>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    description: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredRetiring {
    secret: String,
    until: Timestamp,
}

/// Settings that cannot be read. It does not repeat them.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableSettings {
    /// Not what a store writes.
    #[error("settings_damaged: the settings are not what this program or a newer one writes")]
    Damaged(#[source] serde_json::Error),
    /// A secret does not open.
    #[error(transparent)]
    Secret(#[from] KeyringError),
}

impl EndpointSettings {
    /// The text that a store keeps of an endpoint of `tenant`'s.
    pub fn to_stored(&self, keyring: &Keyring, tenant: &str) -> Result<String, KeyringError> {
        let seal = |secret| keyring.seal(secret, tenant);
        let retiring = self.retiring.iter().map(|RetiringSecret { secret, until }| {
            Ok::<_, KeyringError>(StoredRetiring { secret: seal(secret)?, until: *until })
        });
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| Ok((name.clone(), keyring.seal_bytes(value.as_bytes(), tenant)?)));
        let stored = StoredSettings {
            secrets: self.secrets.iter().map(seal).collect::<Result<_, _>>()?,
            retiring: retiring.collect::<Result<_, _>>()?,
            signature: self.signature.clone(),
            retry_policy: self.retry_policy.clone(),
            max_in_flight: self.max_in_flight,
            rate_limit: self.rate_limit,
            timeout_ms: self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            headers: headers.collect::<Result<_, KeyringError>>()?,
            description: self.description.clone(),
        };
        Ok(serde_json::to_string(&stored).expect("settings are plain data"))
    }

    /// What a store kept of an endpoint of `tenant`'s.
    pub fn from_stored(text: &str, keyring: &Keyring, tenant: &str) -> Result<Self, UnreadableSettings> {
        let stored: StoredSettings = serde_json::from_str(text).map_err(UnreadableSettings::Damaged)?;
        let open = |sealed: &str| keyring.open(sealed, tenant);
        let retiring = stored.retiring.iter().map(|StoredRetiring { secret, until }| {
            Ok::<_, KeyringError>(RetiringSecret { secret: open(secret)?, until: *until })
        });
        let headers = stored.headers.into_iter().map(|(name, sealed)| {
            let value = String::from_utf8(keyring.open_bytes(&sealed, tenant)?).map_err(|_| KeyringError::Damaged)?;
            Ok((name, value))
        });
        Ok(Self {
            secrets: stored.secrets.iter().map(|secret| open(secret)).collect::<Result<_, _>>()?,
            retiring: retiring.collect::<Result<_, _>>()?,
            signature: stored.signature,
            retry_policy: stored.retry_policy,
            max_in_flight: stored.max_in_flight,
            rate_limit: stored.rate_limit,
            timeout: stored.timeout_ms.map(Duration::from_millis),
            headers: headers.collect::<Result<_, KeyringError>>()?,
            description: stored.description,
        })
    }

    /// Whether every secret in a stored text is sealed with the key that seals now.
    pub fn is_sealed_with_current_key(text: &str, keyring: &Keyring) -> bool {
        let Ok(stored) = serde_json::from_str::<StoredSettings>(text) else { return false };
        let retiring = stored.retiring.iter().map(|retiring| &retiring.secret);
        let headers = stored.headers.iter().map(|(_, value)| value);
        stored.secrets.iter().chain(retiring).chain(headers).all(|sealed| keyring.is_current(sealed))
    }

    /// The secrets that sign at `now`, the newest first.
    pub fn signing_secrets(&self, now: Timestamp) -> Vec<Secret> {
        let retiring = self.retiring.iter().filter(|retiring| retiring.until > now).map(|retiring| &retiring.secret);
        self.secrets.iter().chain(retiring).cloned().collect()
    }

    /// Puts a new secret in the place of those that sign; they sign beside it until `until`. What is over at `now` is
    /// dropped.
    pub fn rotate(&mut self, secret: Secret, now: Timestamp, until: Timestamp) {
        let replaced = std::mem::replace(&mut self.secrets, vec![secret]);
        self.retiring.retain(|retiring| retiring.until > now);
        let retiring = replaced.into_iter().map(|secret| RetiringSecret { secret, until });
        self.retiring.splice(0..0, retiring.filter(|retiring| retiring.until > now));
        // Each makes the header longer, and one that is replaced so often is not used by anybody.
        self.retiring.truncate(Self::MAX_RETIRING);
    }

    /// How many replaced secrets sign beside the newest at most.
    pub const MAX_RETIRING: usize = 4;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::SecretKey;

    #[test]
    fn patterns_match_as_documented() {
        let matches =
            |pattern: &str, event_type: &str| pattern.parse::<EventTypePattern>().unwrap().matches(event_type);
        assert!(matches("*", "invoice.paid"));
        assert!(matches("invoice.*", "invoice.paid"));
        assert!(matches("invoice.*", "invoice.line.added"));
        assert!(!matches("invoice.*", "invoice"));
        assert!(!matches("invoice.*", "invoices.paid"));
        assert!(matches("invoice.paid", "invoice.paid"));
        assert!(!matches("invoice.paid", "invoice.paid.twice"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "**", "in*voice", "*.paid", "invoice.*.paid", "invoice.**", ".*", "a..b", "a b"] {
            let refusal = text.parse::<EventTypePattern>().unwrap_err();
            assert_eq!(refusal.code, "event_type_pattern_invalid", "{text}");
        }
    }

    #[test]
    fn settings_survive_being_stored() {
        let settings = EndpointSettings {
            secrets: vec![Secret::generate(), Secret::generate()],
            retiring: vec![RetiringSecret { secret: Secret::generate(), until: Timestamp::UNIX_EPOCH }],
            rate_limit: Some("100/s".parse().unwrap()),
            retry_policy: Some(RetryPolicy::default()),
            signature: Some(SignatureScheme::default()),
            max_in_flight: NonZeroU32::new(3),
            timeout: Some(Duration::from_millis(1500)),
            headers: vec![("x-team".to_owned(), "billing".to_owned())],
            description: "the billing team's".to_owned(),
        };
        let keyring = Keyring::new([SecretKey::generate()]);
        let stored = settings.to_stored(&keyring, "acme").unwrap();
        let read = |text: &str| EndpointSettings::from_stored(text, &keyring, "acme");
        assert_eq!(read(&stored).unwrap(), settings);
        assert!(EndpointSettings::is_sealed_with_current_key(&stored, &keyring));
        assert!(
            stored.contains("x-team") && !stored.contains("billing\""),
            "a header's value may be a credential: {stored}"
        );
        let newer = Keyring::new([SecretKey::generate()]);
        assert!(!EndpointSettings::is_sealed_with_current_key(&stored, &newer));
        assert_eq!(read("{}").unwrap(), EndpointSettings::default());
        assert_eq!(read(r#"{"description":"known","invented_later":true}"#).unwrap().description, "known");
        assert!(matches!(read("no JSON"), Err(UnreadableSettings::Damaged(_))));
        let in_clear = format!(r#"{{"secrets":["{}"]}}"#, Secret::generate().reveal());
        assert!(matches!(read(&in_clear), Err(UnreadableSettings::Secret(KeyringError::Damaged))));
    }

    #[test]
    fn a_replaced_secret_signs_beside_the_new_one_until_its_time_is_over() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |seconds| now + Duration::from_secs(seconds);
        let [first, second, third] = [Secret::generate(), Secret::generate(), Secret::generate()];
        let mut settings = EndpointSettings { secrets: vec![first.clone()], ..EndpointSettings::default() };
        settings.rotate(second.clone(), now, at(60));
        assert_eq!(settings.signing_secrets(at(59)), [second.clone(), first.clone()]);
        assert_eq!(settings.signing_secrets(at(60)), std::slice::from_ref(&second));
        settings.rotate(third.clone(), at(30), at(90));
        assert_eq!(settings.signing_secrets(at(31)), [third.clone(), second.clone(), first]);
        settings.rotate(Secret::generate(), at(70), at(70));
        assert_eq!(settings.retiring, [RetiringSecret { secret: second, until: at(90) }], "no overlap: gone at once");
        for _ in 0..10 {
            settings.rotate(Secret::generate(), at(71), at(100));
        }
        assert_eq!(settings.retiring.len(), EndpointSettings::MAX_RETIRING);
    }
}
