//! What a receiver gets: the request of one attempt.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use jiff::Timestamp;

use super::builder::Settings;
use crate::refusal::Refusal;
use crate::secret::Secret;
use crate::signature::{Message, SignatureScheme};
use crate::store::Claim;
use crate::transport::Post;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("Postrider/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_TYPE: HeaderName = HeaderName::from_static("postrider-event-type");
const DELIVERY_ID: HeaderName = HeaderName::from_static("postrider-delivery-id");
const ATTEMPT: HeaderName = HeaderName::from_static("postrider-attempt");

/// How long the whole attempt may take.
pub(super) fn timeout(claim: &Claim, settings: &Settings) -> Duration {
    claim.endpoint.as_ref().and_then(|endpoint| endpoint.settings.timeout).unwrap_or(settings.timeout)
}

/// Until when the lease of an attempt that begins now is renewed. The attempt ends by its timeout; one more lease is for its settle.
pub(super) fn hard_deadline(claim: &Claim, settings: &Settings, begins_at: Instant) -> Instant {
    begins_at + timeout(claim, settings) + settings.term.lease()
}

/// The request, signed at `now`, the database's time. It cannot be made without a secret: nothing goes out unsigned.
pub(super) fn post(claim: &Claim, settings: &Settings, now: Timestamp) -> Result<Post, Refusal> {
    let endpoint = claim.endpoint.as_ref().map(|endpoint| &endpoint.settings);
    let secrets: Vec<Secret> =
        endpoint.map_or_else(|| settings.signing_secrets.clone(), |endpoint| endpoint.signing_secrets(now));
    let scheme: &SignatureScheme =
        endpoint.and_then(|endpoint| endpoint.signature.as_ref()).unwrap_or(&settings.signature);

    let mut headers = HeaderMap::with_capacity(16);
    // The endpoint's own headers come first, and those that were asked for next, so that they can replace none of ours.
    for (name, value) in endpoint.map(|endpoint| endpoint.headers.as_slice()).unwrap_or_default() {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.insert(name, value);
        }
    }
    let event_id = claim.event_id.to_string();
    let attempt = HeaderValue::from(claim.earlier_attempts + claim.attempt_count + 1);
    if let Some(name) = &settings.event_id_header {
        headers.insert(name, event_id.parse().expect("an id is lower-case ASCII"));
    }
    if let Some(name) = &settings.attempt_header {
        headers.insert(name, attempt.clone());
    }
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::USER_AGENT, USER_AGENT);
    let event_type: HeaderValue =
        claim.event_type.parse().map_err(|_| Refusal::new("event_type_invalid", "type", "not a header value"))?;
    headers.insert(EVENT_TYPE, event_type);
    let delivery_id = claim.lease.delivery_id.to_string();
    headers.insert(DELIVERY_ID, delivery_id.parse().expect("an id is lower-case ASCII"));
    headers.insert(ATTEMPT, attempt);

    let message = Message {
        event_id: &event_id,
        event_type: &claim.event_type,
        timestamp: now.as_second(),
        body: &claim.payload,
    };
    for (name, value) in scheme.sign(&secrets, &message)? {
        headers.insert(name, value);
    }
    let url = claim.destination_url.clone();
    Ok(Post { url, headers, body: claim.payload.clone(), timeout: timeout(claim, settings) })
}
