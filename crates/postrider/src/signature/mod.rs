//! Signatures: how a receiver knows that a payload is ours and unaltered.
//!
//! Two schemes, both HMAC-SHA256, differ in what is signed and how it is written down:
//!
//! | scheme | headers | signed |
//! |---|---|---|
//! | `standard` | `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64>` | `id.timestamp.body` |
//! | `hmac-sha256-hex` | `<prefix>Event-Id`, `<prefix>Event-Type`, `<prefix>Timestamp`, `<prefix>Signature: sha256=<hex>` | `timestamp.body`, or `body` |
//!
//! The first is [Standard Webhooks](https://www.standardwebhooks.com), for which libraries exist in every language. The
//! second is what most hand-written receivers expect, and signs less: neither form covers the event's id, and `body`
//! does not cover the timestamp either, so that a recorded request can be replayed for ever. Choose it only where a
//! receiver leaves no choice.
//!
//! **Rotation.** Several secrets may be current, the newest first. The standard scheme has a place for several
//! signatures, and every secret signs, so that receivers may change over whenever they like. The hex scheme's receivers
//! compare the whole header with one expected text; a second signature in it would break all of them. There the newest
//! secret alone signs, and the receiver has to accept both secrets while it changes over.
//!
//! Nothing here reads a clock: the timestamp of a signature and the "now" of a verification are arguments.

mod scheme;
mod verify;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderName, HeaderValue};
use sha2::Sha256;

pub use scheme::{DEFAULT_HEADER_PREFIX, HeaderPrefix, SignatureScheme, Signed};
pub use verify::{DEFAULT_TOLERANCE, Received, VerifyError};

use crate::refusal::Refusal;
use crate::secret::Secret;

/// The header that carries the event's id in the standard scheme.
pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// The header that carries the time of signing in the standard scheme.
pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// The header that carries the signatures in the standard scheme.
pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What is signed and sent along.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// The event's id as receivers see it: `evt_…`.
    pub event_id: &'a str,
    /// What happened: `invoice.paid`.
    pub event_type: &'a str,
    /// When this attempt is signed, in seconds since 1970.
    pub timestamp: i64,
    /// The exact bytes of the request's body.
    pub body: &'a [u8],
}

impl SignatureScheme {
    /// The headers that prove `message` to whoever shares one of the secrets, which are given newest first.
    pub fn sign(&self, secrets: &[Secret], message: &Message<'_>) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
        let Some(newest) = secrets.first() else {
            return Err(Refusal::new("signature_secret_missing", "secrets", "there is no secret to sign with"));
        };
        if message.timestamp < 0 {
            return Err(Refusal::new(
                "signature_timestamp_invalid",
                "timestamp",
                format!("the timestamp {} is before 1970", message.timestamp),
            ));
        }
        let id = id_value(message.event_id)?;
        let timestamp = HeaderValue::from(message.timestamp);
        match self {
            Self::Standard => {
                let mut signatures = String::with_capacity(secrets.len() * 48);
                for secret in secrets {
                    if !signatures.is_empty() {
                        signatures.push(' ');
                    }
                    signatures.push_str("v1,");
                    STANDARD.encode_string(standard_code(secret, message), &mut signatures);
                }
                let signatures =
                    HeaderValue::try_from(signatures).expect("base64, commas and spaces are visible ASCII");
                Ok(vec![(WEBHOOK_ID, id), (WEBHOOK_TIMESTAMP, timestamp), (WEBHOOK_SIGNATURE, signatures)])
            }
            Self::HmacSha256Hex { header_prefix, signed } => {
                let event_type = HeaderValue::from_str(message.event_type).map_err(|_| {
                    Refusal::new(
                        "signature_event_type_invalid",
                        "type",
                        format!("the event type `{}` cannot stand in a header", message.event_type.escape_default()),
                    )
                })?;
                let signature = hex_signature(&hex_code(newest, *signed, message));
                let signature = HeaderValue::try_from(signature).expect("hexadecimal digits are visible ASCII");
                Ok(vec![
                    (header_prefix.event_id(), id),
                    (header_prefix.event_type(), event_type),
                    (header_prefix.timestamp(), timestamp),
                    (header_prefix.signature(), signature),
                ])
            }
        }
    }
}

/// The id as a header value. A dot in it is refused, because dots separate the parts of what is signed: with one in the
/// id, the same signature would fit several different messages.
fn id_value(id: &str) -> Result<HeaderValue, Refusal> {
    is_unambiguous_id(id).then(|| HeaderValue::from_str(id).ok()).flatten().ok_or_else(|| {
        let shown: String = id.chars().take(64).collect();
        Refusal::new(
            "signature_event_id_invalid",
            "event_id",
            format!("`{}` cannot be signed as an event id", shown.escape_default()),
        )
        .hint("an id has 1 to 255 visible ASCII characters, and no dot")
    })
}

fn is_unambiguous_id(id: &str) -> bool {
    (1..=255).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.')
}

type Code = [u8; 32];

fn standard_code(secret: &Secret, message: &Message<'_>) -> Code {
    let timestamp = message.timestamp.to_string();
    authentication_code(secret, &[message.event_id.as_bytes(), b".", timestamp.as_bytes(), b".", message.body])
}

fn hex_code(secret: &Secret, signed: Signed, message: &Message<'_>) -> Code {
    match signed {
        Signed::TimestampBody => {
            let timestamp = message.timestamp.to_string();
            authentication_code(secret, &[timestamp.as_bytes(), b".", message.body])
        }
        Signed::Body => authentication_code(secret, &[message.body]),
    }
}

fn authentication_code(secret: &Secret, parts: &[&[u8]]) -> Code {
    let mut code = Hmac::<Sha256>::new_from_slice(secret.expose()).expect("HMAC takes keys of any length");
    for part in parts {
        code.update(part);
    }
    code.finalize().into_bytes().into()
}

fn hex_signature(code: &Code) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity("sha256=".len() + 2 * code.len());
    text.push_str("sha256=");
    for byte in code {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 0x0f)]));
    }
    text
}
