//! Verification, for receivers that use this crate.
//!
//! A comparison takes the same time wherever the first difference is, and every secret is tried against every signature
//! before the answer is known, so that neither can be learned from how long it took.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use subtle::{Choice, ConstantTimeEq};

use super::{Code, Message, SignatureScheme, Signed, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};
use super::{hex_code, hex_signature, is_unambiguous_id, standard_code};
use crate::secret::Secret;

/// How far a timestamp may be from now, in either direction, unless a receiver chooses otherwise.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_mins(5);

/// The parts of a request that a signature is checked with, as they arrived.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The header with the event's id. The hex scheme does not sign it and ignores it.
    pub event_id: &'a str,
    /// The header with the timestamp. The hex scheme over the body alone does not sign it and ignores it.
    pub timestamp: &'a str,
    /// The header with the signature or signatures.
    pub signature: &'a str,
    /// The exact bytes of the body, before any parsing.
    pub body: &'a [u8],
}

/// Why a request was not accepted as genuine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The receiver gave no secret to verify with.
    #[error("there is no secret to verify with")]
    SecretMissing,
    /// A header that the scheme needs is not there.
    #[error("the header `{0}` is missing")]
    HeaderMissing(HeaderName),
    /// A header is there more than once, so that it is not clear which was signed.
    #[error("the header `{0}` is there more than once")]
    HeaderRepeated(HeaderName),
    /// A header is not text.
    #[error("the header `{0}` is not visible ASCII")]
    HeaderInvalid(HeaderName),
    /// The id is empty, too long, or contains a dot, with which a signature would be ambiguous.
    #[error("the event id is not one that is ever signed")]
    EventIdInvalid,
    /// The timestamp is not a count of seconds.
    #[error("the timestamp is not a number of seconds since 1970")]
    TimestampInvalid,
    /// Signed too long ago: delayed, or replayed.
    #[error("the timestamp is {} s in the past, {} s are tolerated", by.as_secs(), tolerance.as_secs())]
    TimestampTooOld {
        /// How long ago.
        by: Duration,
        /// How long would have been accepted.
        tolerance: Duration,
    },
    /// Signed in the future: one of the two clocks is wrong.
    #[error("the timestamp is {} s in the future, {} s are tolerated", by.as_secs(), tolerance.as_secs())]
    TimestampTooNew {
        /// How far ahead.
        by: Duration,
        /// How far would have been accepted.
        tolerance: Duration,
    },
    /// The signature header has no signature of this scheme in it.
    #[error("the signature header has no signature of the expected form")]
    SignatureMalformed,
    /// No signature matches any of the secrets: another secret, or an altered request.
    #[error("no signature matches: the secret differs, or the request was altered")]
    SignatureMismatch,
}

impl VerifyError {
    /// Stable, for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SecretMissing => "signature_secret_missing",
            Self::HeaderMissing(_) => "signature_header_missing",
            Self::HeaderRepeated(_) => "signature_header_repeated",
            Self::HeaderInvalid(_) => "signature_header_invalid",
            Self::EventIdInvalid => "signature_event_id_invalid",
            Self::TimestampInvalid => "signature_timestamp_invalid",
            Self::TimestampTooOld { .. } => "signature_timestamp_too_old",
            Self::TimestampTooNew { .. } => "signature_timestamp_too_new",
            Self::SignatureMalformed => "signature_malformed",
            Self::SignatureMismatch => "signature_mismatch",
        }
    }
}

impl SignatureScheme {
    /// Whether one of the secrets signed this request, within `tolerance` of `now` (in seconds since 1970).
    ///
    /// The body is the bytes as they arrived: a parsed and rewritten JSON text is another text.
    pub fn verify_headers(
        &self,
        secrets: &[Secret],
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
        tolerance: Duration,
    ) -> Result<(), VerifyError> {
        let received = match self {
            Self::Standard => Received {
                event_id: single(headers, &WEBHOOK_ID)?,
                timestamp: single(headers, &WEBHOOK_TIMESTAMP)?,
                signature: single(headers, &WEBHOOK_SIGNATURE)?,
                body,
            },
            Self::HmacSha256Hex { header_prefix, signed } => Received {
                event_id: "",
                timestamp: match signed {
                    Signed::TimestampBody => single(headers, &header_prefix.timestamp())?,
                    Signed::Body => "",
                },
                signature: single(headers, &header_prefix.signature())?,
                body,
            },
        };
        self.verify(secrets, &received, now, tolerance)
    }

    /// The same for a receiver whose web framework has headers of another type.
    pub fn verify(
        &self,
        secrets: &[Secret],
        received: &Received<'_>,
        now: i64,
        tolerance: Duration,
    ) -> Result<(), VerifyError> {
        if secrets.is_empty() {
            return Err(VerifyError::SecretMissing);
        }
        let timestamp = match self {
            Self::HmacSha256Hex { signed: Signed::Body, .. } => 0,
            _ => parse_timestamp(received.timestamp)?,
        };
        let message = Message { event_id: received.event_id, event_type: "", timestamp, body: received.body };
        let matches = match self {
            Self::Standard => {
                if !is_unambiguous_id(received.event_id) {
                    return Err(VerifyError::EventIdInvalid);
                }
                let offered = standard_signatures(received.signature);
                if offered.is_empty() {
                    return Err(VerifyError::SignatureMalformed);
                }
                any(secrets, |secret| {
                    let expected = standard_code(secret, &message);
                    any(&offered, |code| code.ct_eq(&expected))
                })
            }
            Self::HmacSha256Hex { signed, .. } => {
                if !is_hex_signature(received.signature) {
                    return Err(VerifyError::SignatureMalformed);
                }
                any(secrets, |secret| {
                    let expected = hex_signature(&hex_code(secret, *signed, &message));
                    received.signature.as_bytes().ct_eq(expected.as_bytes())
                })
            }
        };
        if !bool::from(matches) {
            return Err(VerifyError::SignatureMismatch);
        }
        // Last, so that what is said about a timestamp is said about a genuine one.
        match self {
            Self::HmacSha256Hex { signed: Signed::Body, .. } => Ok(()),
            _ => check_tolerance(timestamp, now, tolerance),
        }
    }
}

/// Whether it holds for any, without stopping at the first.
fn any<T>(items: &[T], holds: impl Fn(&T) -> Choice) -> Choice {
    items.iter().fold(Choice::from(0), |found, item| found | holds(item))
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, VerifyError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| VerifyError::HeaderMissing(name.clone()))?;
    if values.next().is_some() {
        return Err(VerifyError::HeaderRepeated(name.clone()));
    }
    value.to_str().map_err(|_| VerifyError::HeaderInvalid(name.clone()))
}

/// Only the one spelling that signing produces, since it is the number and not the text that is signed again.
fn parse_timestamp(text: &str) -> Result<i64, VerifyError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || (text.len() > 1 && text.starts_with('0')) {
        return Err(VerifyError::TimestampInvalid);
    }
    text.parse().map_err(|_| VerifyError::TimestampInvalid)
}

fn check_tolerance(timestamp: i64, now: i64, tolerance: Duration) -> Result<(), VerifyError> {
    let by = Duration::from_secs(now.abs_diff(timestamp));
    if by <= tolerance {
        Ok(())
    } else if timestamp < now {
        Err(VerifyError::TimestampTooOld { by, tolerance })
    } else {
        Err(VerifyError::TimestampTooNew { by, tolerance })
    }
}

/// The `v1` signatures among those in the header; other versions are for other verifiers.
fn standard_signatures(header: &str) -> Vec<Code> {
    let decode = |encoded: &str| STANDARD.decode(encoded).ok()?.try_into().ok();
    header.split(' ').filter_map(|entry| entry.strip_prefix("v1,")).filter_map(decode).collect()
}

fn is_hex_signature(header: &str) -> bool {
    header.strip_prefix("sha256=").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}
