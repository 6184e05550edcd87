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
    /// Each signs; several while a secret rotates, the newest first.
    pub secrets: Vec<Secret>,
    /// How it is signed.
    pub signature: Option<SignatureScheme>,
    /// When to try again.
    pub retry_policy: Option<RetryPolicy>,
    /// At most this many at a time from one dispatcher.
    pub max_in_flight: Option<NonZeroU32>,
    /// For one whole POST.
    pub timeout: Option<Duration>,
    /// Sent with every attempt.
    pub headers: Vec<(String, String)>,
    /// For people.
    pub description: String,
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
    /// When it was registered.
    pub created_at: Timestamp,
}

/// [`EndpointSettings`] as stores keep them: one JSON text, the same in every dialect. A field that is not known was written
/// by a newer program beside this one, which must not keep this one from claiming.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSettings {
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    signature: Option<SignatureScheme>,
    #[serde(default)]
    retry_policy: Option<RetryPolicy>,
    #[serde(default)]
    max_in_flight: Option<NonZeroU32>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    description: String,
}

impl EndpointSettings {
    /// The text that a store keeps. It contains the secrets.
    pub fn to_stored(&self) -> String {
        let stored = StoredSettings {
            secrets: self.secrets.iter().map(Secret::reveal).collect(),
            signature: self.signature.clone(),
            retry_policy: self.retry_policy.clone(),
            max_in_flight: self.max_in_flight,
            timeout_ms: self.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            headers: self.headers.clone(),
            description: self.description.clone(),
        };
        serde_json::to_string(&stored).expect("settings are plain data")
    }

    /// What a store kept.
    pub fn from_stored(text: &str) -> Result<Self, serde_json::Error> {
        use serde::de::Error as _;
        let stored: StoredSettings = serde_json::from_str(text)?;
        let secrets = stored.secrets.iter().map(|secret| Secret::parse(secret)).collect::<Result<_, _>>();
        Ok(Self {
            secrets: secrets.map_err(serde_json::Error::custom)?,
            signature: stored.signature,
            retry_policy: stored.retry_policy,
            max_in_flight: stored.max_in_flight,
            timeout: stored.timeout_ms.map(Duration::from_millis),
            headers: stored.headers,
            description: stored.description,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            retry_policy: Some(RetryPolicy::default()),
            signature: Some(SignatureScheme::default()),
            max_in_flight: NonZeroU32::new(3),
            timeout: Some(Duration::from_millis(1500)),
            headers: vec![("x-team".to_owned(), "billing".to_owned())],
            description: "the billing team's".to_owned(),
        };
        assert_eq!(EndpointSettings::from_stored(&settings.to_stored()).unwrap(), settings);
        assert_eq!(EndpointSettings::from_stored("{}").unwrap(), EndpointSettings::default());
        let newer = r#"{"description":"known","invented_later":true}"#;
        assert_eq!(EndpointSettings::from_stored(newer).unwrap().description, "known");
    }
}
