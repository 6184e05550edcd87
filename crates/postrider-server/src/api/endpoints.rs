//! Endpoints over the wire.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use postrider::{EndpointId, EndpointStatus};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::{object, schemas};

/// A text that opens something: it is shown to whoever asked for it, and to no log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = String)]
pub struct Confidential(pub String);

impl Confidential {
    /// The text, for the one who may see it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Confidential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Confidential(masked)")
    }
}

/// How payloads are signed: the name of a scheme, or an object that also says how `hmac-sha256-hex` is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "`standard`, `hmac-sha256-hex`, or an object with `scheme`, `header_prefix` and `signed`"
)]
pub enum Signature {
    /// `standard` (Standard Webhooks) or `hmac-sha256-hex`.
    #[schema(title = "SignatureName", example = "standard")]
    Name(String),
    /// With its parameters.
    Table(#[serde(deserialize_with = "object::required")] SignatureTable),
}

/// A signature scheme with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignatureTable {
    /// `standard`, which has no parameters, or `hmac-sha256-hex`.
    #[schema(schema_with = scheme)]
    pub scheme: String,
    /// What the names of the headers begin with; `X-Webhook-` if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "X-Acme-", max_length = 64)]
    pub header_prefix: Option<String>,
    /// What is signed; `timestamp.body` if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = signed)]
    pub signed: Option<String>,
}

/// A receiver to be registered. What is left out, or null, is the server's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEndpoint)]
pub struct NewEndpoint {
    /// Where events are sent.
    #[schema(example = "https://hooks.example.com/billing", max_length = 2048)]
    pub url: String,
    /// Which event types it wants: `*` is everything, `invoice.*` everything below `invoice.`, otherwise exact. Everything
    /// if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["invoice.*"]), min_items = 1, max_items = 100)]
    pub event_types: Option<Vec<String>>,
    /// What signs: `whsec_` and base64 of 16 to 256 bytes, or a plain text of that length. One is made if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<Confidential>,
    /// How long to wait after each failure; the last delay repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["30s", "2m", "10m"]))]
    pub retry_schedule: Option<Vec<String>>,
    /// How many attempts are made before a delivery is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 5, minimum = 1, maximum = 1000)]
    pub max_attempts: Option<u32>,
    /// At most this many attempts at a time, from all dispatchers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 8, minimum = 1, maximum = 10_000)]
    pub max_in_flight: Option<u32>,
    /// At most this often, from all dispatchers together: `100/s`, `600/m`, `5000/h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "100/s", pattern = "^[0-9]+/[smh]$")]
    pub rate_limit: Option<String>,
    /// For one whole attempt, from `100ms` to `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "15s")]
    pub timeout: Option<String>,
    /// How payloads are signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Sent with every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"x-team": "billing"}))]
    pub headers: Option<BTreeMap<String, String>>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
}

/// What becomes of one field in a PATCH: left out, it stays; null, it is the server's default again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Patched<T> {
    /// As it was.
    #[default]
    Unchanged,
    /// The server's default.
    Default,
    /// This.
    To(T),
}

impl<T> Patched<T> {
    /// As it was.
    pub fn is_unchanged(&self) -> bool {
        matches!(self, Self::Unchanged)
    }

    /// This, or as it was.
    pub fn to(value: Option<T>) -> Self {
        value.map_or(Self::Unchanged, Self::To)
    }
}

impl<T: Serialize> Serialize for Patched<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unchanged | Self::Default => serializer.serialize_none(),
            Self::To(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patched<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Default, Self::To))
    }
}

/// What is to be changed about an endpoint. What is left out stays as it is; null is the server's default again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointPatch {
    /// Where events are sent. Deliveries that exist keep their destination. It has no default, and cannot be null.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "not_null")]
    #[schema(value_type = String, required = false, example = "https://hooks.example.com/billing", max_length = 2048)]
    pub url: Option<String>,
    /// Which event types it wants.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["invoice.*"]), min_items = 1, max_items = 100)]
    pub event_types: Patched<Vec<String>>,
    /// How long to wait after each failure; the last delay repeats.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["30s", "2m", "10m"]))]
    pub retry_schedule: Patched<Vec<String>>,
    /// How many attempts are made before a delivery is dead.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub max_attempts: Patched<u32>,
    /// At most this many attempts at a time, from all dispatchers together.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    pub max_in_flight: Patched<u32>,
    /// At most this often, from all dispatchers together: `100/s`, `600/m`, `5000/h`.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<String>, example = "100/s", pattern = "^[0-9]+/[smh]$")]
    pub rate_limit: Patched<String>,
    /// For one whole attempt, from `100ms` to `1h`.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<String>, example = "15s")]
    pub timeout: Patched<String>,
    /// How payloads are signed.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<Signature>)]
    pub signature: Patched<Signature>,
    /// Sent with every attempt; all of them, in the place of those that were there.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<BTreeMap<String, String>>, example = json!({"x-team": "billing"}))]
    pub headers: Patched<BTreeMap<String, String>>,
    /// For people.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub description: Patched<String>,
}

/// A registered receiver. What is null is the server's default. Its secret is never shown again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Endpoint {
    /// Its id.
    #[schema(schema_with = schemas::endpoint_id)]
    pub id: EndpointId,
    /// Whose it is.
    #[schema(example = "default")]
    pub tenant: String,
    /// Where events are sent, in canonical form.
    #[schema(example = "https://hooks.example.com/billing")]
    pub url: String,
    /// Which event types it wants.
    #[schema(example = json!(["invoice.*"]))]
    pub event_types: Vec<String>,
    /// `active`; `paused`: its deliveries wait; `disabled`: they wait, and new events pass it by.
    #[schema(schema_with = endpoint_status)]
    pub status: EndpointStatus,
    /// Why it is paused or disabled.
    pub status_reason: Option<String>,
    /// When the first of the failures in a row began that no success has ended.
    pub failing_since: Option<Timestamp>,
    /// How long to wait after each failure; the last delay repeats.
    #[schema(example = json!(["30s", "2m", "10m"]))]
    pub retry_schedule: Option<Vec<String>>,
    /// How many attempts are made before a delivery is dead.
    pub max_attempts: Option<u32>,
    /// At most this many attempts at a time, from all dispatchers together.
    pub max_in_flight: Option<u32>,
    /// At most this often, from all dispatchers together.
    #[schema(example = "100/s")]
    pub rate_limit: Option<String>,
    /// For one whole attempt.
    #[schema(example = "15s")]
    pub timeout: Option<String>,
    /// How payloads are signed.
    pub signature: Option<Signature>,
    /// Sent with every attempt. Values of headers that carry credentials are shown as `****`.
    #[schema(example = json!({"x-team": "billing"}))]
    pub headers: BTreeMap<String, String>,
    /// For people.
    pub description: String,
    /// Until when a secret that was replaced still signs beside the new one.
    pub secrets_retiring_until: Option<Timestamp>,
    /// Why its settings cannot be read, if they cannot; nothing is sent to it then.
    pub trouble: Option<String>,
    /// Counts what operators changed.
    pub revision: u64,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// An endpoint with its newest secret, which is shown here and never again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointWithSecret {
    /// The endpoint.
    #[serde(flatten)]
    pub endpoint: Endpoint,
    /// What signs from now on. Keep it; it is not shown again.
    #[schema(value_type = String, example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    pub secret: Confidential,
}

/// Which endpoints to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EndpointQuery {
    /// Only those in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(schema_with = endpoint_status)]
    pub status: Option<String>,
    /// How many: 1 to 250, 50 if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 250)]
    pub limit: Option<u32>,
    /// The `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Why an endpoint is paused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    /// For people; it is shown with the endpoint, and in the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "the receiver moves house", max_length = 1000)]
    pub reason: Option<String>,
}

/// How a secret is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// What signs from now on. One is made if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<Confidential>,
    /// How long the one before signs beside it: `24h` if it is left out, `0s` not at all, `30d` at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "24h")]
    pub overlap: Option<String>,
}

fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

fn endpoint_status() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["active", "paused", "disabled"])).build()
}

fn scheme() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(postrider::SignatureScheme::NAMES)).build()
}

fn signed() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["timestamp.body", "body"])).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_tells_what_is_left_out_from_what_is_null() {
        let text = r#"{"max_attempts":7,"timeout":null}"#;
        let patch: EndpointPatch = serde_json::from_str(text).unwrap();
        let expected =
            EndpointPatch { max_attempts: Patched::To(7), timeout: Patched::Default, ..EndpointPatch::default() };
        assert_eq!(patch, expected);
        assert_eq!(serde_json::to_string(&patch).unwrap(), text);
    }

    #[test]
    fn a_secret_is_sent_and_never_printed() {
        let new =
            NewEndpoint { secret: Some(Confidential("a canary in a coal mine".to_owned())), ..NewEndpoint::default() };
        assert!(!format!("{new:?}").contains("canary"));
        assert!(serde_json::to_string(&new).unwrap().contains("canary"));
    }

    #[test]
    fn a_signature_is_a_name_or_an_object() {
        let read = |text: &str| serde_json::from_str::<Signature>(text);
        assert_eq!(read(r#""standard""#).unwrap(), Signature::Name("standard".to_owned()));
        assert!(matches!(read(r#"{"scheme":"standard"}"#).unwrap(), Signature::Table(_)));
        assert!(read(r#"["standard"]"#).is_err(), "an array is not taken for the fields in their order");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(serde_json::from_str::<EndpointPatch>(r#"{"secret":"a"}"#).is_err());
        assert!(serde_json::from_str::<EndpointPatch>(r#"{"url":null}"#).is_err(), "there is no default URL");
        assert!(serde_json::from_str::<NewEndpoint>(r#"{"url":"https://a.example","events":[]}"#).is_err());
        assert!(serde_json::from_str::<Signature>(r#"{"scheme":"standard","algorithm":"none"}"#).is_err());
    }
}
