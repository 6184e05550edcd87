//! Events: immutable facts that an application wants others to hear of.

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::delivery::DeliveryStatus;
use crate::destination::{Destination, DestinationPolicy};
use crate::ids::{DeliveryId, EndpointId, EventId};
use crate::once::Once;
use crate::payload;
use crate::refusal::Refusal;
use crate::store::StoreError;

/// Free facts about an event that travel with its announcements, never to the receiver.
pub type Metadata = Map<String, Value>;

/// The topic on which facts about an event's deliveries are announced, unless the event names another.
pub const DEFAULT_TOPIC: &str = "postrider";

/// The tenant of whoever does not say.
pub const DEFAULT_TENANT: &str = "default";

/// An event to be enqueued, as the caller describes it. Nothing is checked until a store admits it.
///
/// ```
/// use postrider::NewEvent;
///
/// let event = NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#)
///     .to("https://hooks.example.com/billing")
///     .idempotency_key("in_42/paid");
/// assert_eq!(event.event_type, "invoice.paid");
/// ```
#[derive(Clone, PartialEq)]
pub struct NewEvent {
    /// The id that it brings, where its payload must name it. Otherwise the store mints one.
    pub id: Option<EventId>,
    /// Whose event it is.
    pub tenant: String,
    /// What happened: `invoice.paid`.
    pub event_type: String,
    /// JSON, kept and sent byte for byte.
    pub payload: Bytes,
    /// One destination given with the event. Without it the event fans out to the tenant's endpoints.
    pub destination_url: Option<String>,
    /// One of the tenant's endpoints, whatever event types it wants. If it is not there, or disabled, nobody gets the event.
    pub endpoint_id: Option<EndpointId>,
    /// Enqueueing again under the same key and content yields the first event.
    pub idempotency_key: Option<String>,
    /// Only if this subject is not claimed yet; the claim and the event are written together or not at all.
    pub once: Option<Once>,
    /// Not before this instant of the database's clock.
    pub deliver_at: Option<Timestamp>,
    /// Travels with announcements.
    pub metadata: Metadata,
    /// Where facts about its deliveries are announced.
    pub topic: String,
}

impl fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEvent")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("event_type", &self.event_type)
            .field("payload_bytes", &self.payload.len())
            .field("destination_url", &self.destination_url)
            .field("endpoint_id", &self.endpoint_id)
            .field("idempotency_key", &self.idempotency_key)
            .field("once", &self.once)
            .field("deliver_at", &self.deliver_at)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

impl NewEvent {
    /// An event of this type with this JSON payload.
    pub fn new(event_type: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            id: None,
            tenant: DEFAULT_TENANT.to_owned(),
            event_type: event_type.into(),
            payload: payload.into(),
            destination_url: None,
            endpoint_id: None,
            idempotency_key: None,
            once: None,
            deliver_at: None,
            metadata: Metadata::new(),
            topic: DEFAULT_TOPIC.to_owned(),
        }
    }

    /// Under this id, which the payload may then name. It must be new: see [`EventId::generate`].
    ///
    /// It is not compared when an event is repeated under an idempotency key: the first event keeps its own.
    #[must_use]
    pub fn id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// To this URL only, rather than to the tenant's endpoints.
    #[must_use]
    pub fn to(mut self, destination_url: impl Into<String>) -> Self {
        self.destination_url = Some(destination_url.into());
        self
    }

    /// To this endpoint only, whatever event types it wants.
    #[must_use]
    pub fn to_endpoint(mut self, id: EndpointId) -> Self {
        self.endpoint_id = Some(id);
        self
    }

    /// Of this tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = tenant.into();
        self
    }

    /// At most one event under this key, for ever.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Only if nobody has claimed this subject in its current generation.
    #[must_use]
    pub fn once(mut self, subject: impl Into<String>) -> Self {
        self.once = Some(Once { subject: subject.into(), generation: None });
        self
    }

    /// Only if this is the subject's current generation and nobody has claimed it.
    #[must_use]
    pub fn once_in(mut self, subject: impl Into<String>, generation: u64) -> Self {
        self.once = Some(Once { subject: subject.into(), generation: Some(generation) });
        self
    }

    /// Not before this instant.
    #[must_use]
    pub fn deliver_at(mut self, at: Timestamp) -> Self {
        self.deliver_at = Some(at);
        self
    }

    /// With this fact for whoever follows the announcements.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Announce on this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }
}

/// What an enqueue must satisfy. Pure data; a store carries one and admits every event by it.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Which destinations may be named.
    pub destinations: DestinationPolicy,
    /// Larger payloads are refused.
    pub max_payload_bytes: usize,
    /// Whether an event may name its own destination. Where no signing secret is set it may not: nothing goes out
    /// unsigned.
    pub bare_destinations: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Self { destinations: DestinationPolicy::default(), max_payload_bytes: 262_144, bare_destinations: true }
    }
}

/// An event that passed admission: what stores write. There is no other way to make one.
#[derive(Debug, Clone)]
pub struct AdmittedEvent {
    event: NewEvent,
    destination: Option<Destination>,
}

impl AdmittedEvent {
    /// The event as it was described.
    pub fn event(&self) -> &NewEvent {
        &self.event
    }

    /// Its own destination in canonical form, or none when it fans out.
    pub fn destination(&self) -> Option<&Destination> {
        self.destination.as_ref()
    }

    /// What must be equal for two events under one idempotency key to be the same: everything that the caller chose.
    pub fn fingerprint(&self) -> [u8; 32] {
        use sha2::Digest;
        let mut hash = sha2::Sha256::new();
        let event = &self.event;
        let metadata = serde_json::to_vec(&event.metadata).expect("a map of JSON values is JSON");
        let deliver_at = event.deliver_at.map(|at| at.to_string()).unwrap_or_default();
        let destination = self.destination.as_ref().map(Destination::as_str).unwrap_or_default();
        // What was added later counts only where it is used: keys are kept for ever, and a repeat must still be known.
        let endpoint = event.endpoint_id.map(|id| format!("endpoint {id}"));
        let once = event.once.as_ref().map(|once| format!("once {:?} {}", once.generation, once.subject));
        let parts = [
            event.event_type.as_bytes(),
            &event.payload,
            destination.as_bytes(),
            deliver_at.as_bytes(),
            event.topic.as_bytes(),
            &metadata,
        ];
        for part in
            parts.into_iter().chain(once.as_deref().map(str::as_bytes)).chain(endpoint.as_deref().map(str::as_bytes))
        {
            // Each part is preceded by its length, so that no two different lists of parts hash alike.
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

impl Admission {
    const MAX_EVENT_TYPE_BYTES: usize = 255;
    const MAX_NAME_BYTES: usize = 255;
    const MAX_METADATA_BYTES: usize = 16_384;

    /// Accepts the event, or says what is wrong with it.
    pub fn admit(&self, event: NewEvent) -> Result<AdmittedEvent, Refusal> {
        check_id(event.id)?;
        check_event_type(&event.event_type)?;
        payload::check(&event.payload, self.max_payload_bytes)?;
        check_name("tenant", "tenant_invalid", &event.tenant)?;
        check_name("topic", "topic_invalid", &event.topic)?;
        if let Some(key) = &event.idempotency_key {
            check_name("idempotency_key", "idempotency_key_invalid", key)?;
        }
        if let Some(once) = &event.once {
            check_name("once.subject", "subject_invalid", &once.subject)?;
            check_generation(once)?;
        }
        check_metadata(&event.metadata)?;
        if event.destination_url.is_some() && event.endpoint_id.is_some() {
            let detail = "an event goes to a URL of its own or to one endpoint, not to both";
            return Err(Refusal::new("destination_ambiguous", "destination_url", detail));
        }
        if event.destination_url.is_some() && !self.bare_destinations {
            return Err(Refusal::new(
                "signing_secret_missing",
                "destination_url",
                "an event with its own destination would go out unsigned: no signing_secret is set",
            )
            .hint("set signing_secret, or register the URL as an endpoint, which has a secret of its own"));
        }
        let destination = match &event.destination_url {
            Some(url) => Some(self.destinations.check_url(url)?),
            None => None,
        };
        Ok(AdmittedEvent { event, destination })
    }
}

/// Lists are sorted and cut by ids, so an id says when.
fn check_id(id: Option<EventId>) -> Result<(), Refusal> {
    match id {
        Some(id) if id.as_uuid().get_version_num() != 7 => {
            let detail = format!("{id} is not made from a UUID of version 7, which sorts by time");
            Err(Refusal::new("event_id_invalid", "id", detail).hint("use EventId::generate, or leave it to the store"))
        }
        _ => Ok(()),
    }
}

fn check_generation(once: &Once) -> Result<(), Refusal> {
    match once.generation {
        // Stores keep it as a signed number.
        Some(generation) if generation == 0 || i64::try_from(generation).is_err() => {
            let detail = format!("generations are counted from 1, this one is {generation}");
            Err(Refusal::new("generation_invalid", "once.generation", detail))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_event_type(event_type: &str) -> Result<(), Refusal> {
    let shown: String = event_type.chars().take(64).collect();
    let refuse = |detail: String| {
        Err(Refusal::new("event_type_invalid", "type", detail)
            .hint("use letters, digits and `_ - : /` in parts joined by dots, such as `invoice.paid`"))
    };
    if event_type.is_empty() {
        return refuse("the event type is empty".to_owned());
    }
    if event_type.len() > Admission::MAX_EVENT_TYPE_BYTES {
        return refuse(format!("the event type `{shown}…` is longer than {} bytes", Admission::MAX_EVENT_TYPE_BYTES));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:/".contains(&byte);
    if !event_type.split('.').all(|part| !part.is_empty() && part.bytes().all(allowed)) {
        return refuse(format!("`{}` is not an event type", shown.escape_default()));
    }
    Ok(())
}

fn check_metadata(metadata: &Metadata) -> Result<(), Refusal> {
    let refuse = |code, detail: String| Err(Refusal::new(code, "metadata", detail));
    // The walk keeps its own stack, because to serialise is to recurse into what has not been bounded yet.
    let mut texts: Vec<&String> = metadata.keys().collect();
    let mut waiting: Vec<(usize, &Value)> = metadata.values().map(|value| (2, value)).collect();
    while let Some((depth, value)) = waiting.pop() {
        if depth > payload::MAX_DEPTH && (value.is_array() || value.is_object()) {
            let detail = format!("metadata is nested more than {} levels deep", payload::MAX_DEPTH);
            return refuse("metadata_too_deep", detail);
        }
        match value {
            Value::String(text) => texts.push(text),
            Value::Array(values) => waiting.extend(values.iter().map(|value| (depth + 1, value))),
            Value::Object(values) => {
                texts.extend(values.keys());
                waiting.extend(values.values().map(|value| (depth + 1, value)));
            }
            // A store that writes numbers out in digits could not read what is next to the largest of all.
            Value::Number(number) if number.as_f64().is_some_and(|number| number.abs() > 1e308) => {
                return refuse("metadata_invalid", "metadata has a number beyond 1e308".to_owned());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    // Not every store can keep it in text.
    if texts.iter().any(|text| text.contains('\0')) {
        return refuse("metadata_invalid", "metadata contains a NUL character".to_owned());
    }
    let size = serde_json::to_vec(metadata).expect("a map of JSON values is JSON").len();
    if size > Admission::MAX_METADATA_BYTES {
        let detail = format!("metadata has {size} bytes, at most {} are taken", Admission::MAX_METADATA_BYTES);
        return refuse("metadata_too_large", detail);
    }
    Ok(())
}

/// A name in everything that is kept: one line of printable ASCII.
pub fn check_name(field: &'static str, code: &'static str, name: &str) -> Result<(), Refusal> {
    let limit = Admission::MAX_NAME_BYTES;
    let printable = name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if name.is_empty() || name.len() > limit || !printable || name.trim() != name {
        let shown: String = name.chars().take(64).collect();
        let detail =
            format!("{field} has 1 to {limit} printable ASCII characters, this one is `{}`", shown.escape_default());
        return Err(Refusal::new(code, field, detail));
    }
    Ok(())
}

/// What an enqueue did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// A new event, with one delivery per destination; none when no endpoint takes its type.
    New {
        /// The new event.
        event_id: EventId,
        /// When, by the database's clock.
        created_at: Timestamp,
        /// Its deliveries.
        deliveries: Vec<EnqueuedDelivery>,
    },
    /// An earlier enqueue under the same idempotency key had the same content; nothing was written.
    Duplicate {
        /// The event of that earlier enqueue.
        event_id: EventId,
    },
    /// The subject was claimed before, or its generation is over; nothing was written, its idempotency key included.
    NotClaimed {
        /// The subject's current generation.
        generation: u64,
        /// Who has claimed it in this generation; none when the enqueue named an older one and nobody has yet.
        winner: Option<EventId>,
    },
}

impl Enqueued {
    /// The event: new, found under the same key, or the winner of the claim.
    pub fn event_id(&self) -> Option<EventId> {
        match self {
            Self::New { event_id, .. } | Self::Duplicate { event_id } => Some(*event_id),
            Self::NotClaimed { winner, .. } => *winner,
        }
    }

    /// What was written, empty if nothing was.
    pub fn deliveries(&self) -> &[EnqueuedDelivery] {
        match self {
            Self::New { deliveries, .. } => deliveries,
            Self::Duplicate { .. } | Self::NotClaimed { .. } => &[],
        }
    }
}

/// A delivery that an enqueue wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueuedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub destination_url: String,
    /// The endpoint it was fanned out to.
    pub endpoint_id: Option<EndpointId>,
}

/// Why an enqueue wrote nothing.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    /// The event cannot be accepted as it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The key was used before, with other content.
    #[error("idempotency_conflict: the idempotency key `{key}` belongs to {event_id}, whose content differs")]
    IdempotencyConflict {
        /// The key.
        key: String,
        /// The event that has it.
        event_id: EventId,
    },
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EnqueueError {
    /// An event brought an id that another one has.
    pub fn id_taken(id: EventId) -> Self {
        let detail = format!("there is an event {id} already");
        let hint = "bring a new id with every event, and an idempotency key with what may be repeated";
        Self::Refused(Refusal::new("event_id_taken", "id", detail).hint(hint))
    }
}

/// An event as it is stored.
#[derive(Clone, PartialEq, Serialize)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Whose it is.
    pub tenant: String,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The bytes that receivers get.
    #[serde(skip)]
    pub payload: Bytes,
    /// For announcements.
    pub metadata: Metadata,
    /// Where its deliveries are announced.
    pub topic: String,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Its deliveries, oldest first.
    pub deliveries: Vec<EventDelivery>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("event_type", &self.event_type)
            .field("payload_bytes", &self.payload.len())
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

/// Which events to look at; what is not given does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// Of exactly this type.
    pub event_type: Option<String>,
    /// Created at or after.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
}

/// One line of an event's deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub destination_url: String,
    /// How it stands.
    pub status: DeliveryStatus,
}
