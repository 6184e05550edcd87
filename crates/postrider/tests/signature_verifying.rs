//! Verifying: what is accepted, each reason for which it is not, and that no flipped bit gets through.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use postrider::signature::{DEFAULT_TOLERANCE, Message, Received, Signed, VerifyError};
use postrider::{Secret, SignatureScheme};
use proptest::prelude::*;

const EVENT_ID: &str = "evt_01h455vb4pex5vsknk084sn02q";
const NOW: i64 = 1_700_000_000;
const BODY: &[u8] = br#"{"invoice":"in_42"}"#;

fn secret(text: &str) -> Secret {
    Secret::parse(text).unwrap()
}

fn ours() -> Secret {
    secret("the secret that both sides have")
}

fn stranger() -> Secret {
    secret("the secret of somebody else")
}

fn hex(signed: Signed) -> SignatureScheme {
    SignatureScheme::hmac_sha256_hex("X-Acme-", signed).unwrap()
}

fn schemes() -> [SignatureScheme; 3] {
    [SignatureScheme::Standard, hex(Signed::TimestampBody), hex(Signed::Body)]
}

fn message(timestamp: i64) -> Message<'static> {
    Message { event_id: EVENT_ID, event_type: "invoice.paid", timestamp, body: BODY }
}

fn signed_at(scheme: &SignatureScheme, secrets: &[Secret], timestamp: i64) -> HeaderMap {
    scheme.sign(secrets, &message(timestamp)).unwrap().into_iter().collect()
}

fn verify(scheme: &SignatureScheme, secrets: &[Secret], headers: &HeaderMap, body: &[u8]) -> Result<(), VerifyError> {
    scheme.verify_headers(secrets, headers, body, NOW, DEFAULT_TOLERANCE)
}

fn header(name: &str) -> HeaderName {
    HeaderName::try_from(name).unwrap()
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap()
}

#[test]
fn what_is_signed_is_verified_by_every_scheme() {
    for scheme in schemes() {
        let headers = signed_at(&scheme, &[ours()], NOW);
        assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Ok(()), "{scheme:?}");
        assert_eq!(verify(&scheme, &[stranger(), ours()], &headers, BODY), Ok(()), "{scheme:?}");
        assert_eq!(verify(&scheme, &[ours(), stranger()], &headers, BODY), Ok(()), "{scheme:?}");
        assert_eq!(verify(&scheme, &[stranger()], &headers, BODY), Err(VerifyError::SignatureMismatch), "{scheme:?}");
        assert_eq!(verify(&scheme, &[ours()], &headers, b"{}"), Err(VerifyError::SignatureMismatch), "{scheme:?}");
        assert_eq!(verify(&scheme, &[], &headers, BODY), Err(VerifyError::SecretMissing), "{scheme:?}");
    }
}

#[test]
fn a_receiver_with_either_secret_accepts_during_a_rotation() {
    let scheme = SignatureScheme::Standard;
    let headers = signed_at(&scheme, &[ours(), stranger()], NOW);
    assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Ok(()));
    assert_eq!(verify(&scheme, &[stranger()], &headers, BODY), Ok(()));
}

#[test]
fn what_an_independent_library_signs_is_verified() {
    let library = standardwebhooks::Webhook::from_bytes(ours().expose().to_vec()).unwrap();
    let signature = library.sign(EVENT_ID, NOW, BODY).unwrap();
    let received = |body| Received { event_id: EVENT_ID, timestamp: "1700000000", signature: &signature, body };
    let verify = |body| SignatureScheme::Standard.verify(&[ours()], &received(body), NOW, DEFAULT_TOLERANCE);
    assert_eq!(verify(BODY), Ok(()));
    assert_eq!(verify(b"{}"), Err(VerifyError::SignatureMismatch));
}

#[test]
fn signatures_of_other_versions_are_passed_over() {
    let scheme = SignatureScheme::Standard;
    let mut headers = signed_at(&scheme, &[ours()], NOW);
    let genuine = headers["webhook-signature"].to_str().unwrap().to_owned();
    headers.insert("webhook-signature", value(&format!("v1a,AAAA v2,{} {genuine} v1,short", &genuine[3..])));
    assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Ok(()));
    headers.insert("webhook-signature", value(&genuine.replace("v1,", "v2,")));
    assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Err(VerifyError::SignatureMalformed));
}

#[test]
fn a_timestamp_is_tolerated_in_both_directions_up_to_the_limit() {
    for scheme in [SignatureScheme::Standard, hex(Signed::TimestampBody)] {
        let at = |timestamp| verify(&scheme, &[ours()], &signed_at(&scheme, &[ours()], timestamp), BODY);
        let (by, tolerance) = (Duration::from_secs(301), DEFAULT_TOLERANCE);
        assert_eq!(at(NOW - 300), Ok(()));
        assert_eq!(at(NOW - 301), Err(VerifyError::TimestampTooOld { by, tolerance }));
        assert_eq!(at(NOW + 300), Ok(()));
        assert_eq!(at(NOW + 301), Err(VerifyError::TimestampTooNew { by, tolerance }));
        assert!(matches!(at(0), Err(VerifyError::TimestampTooOld { .. })));
        assert!(matches!(at(i64::MAX), Err(VerifyError::TimestampTooNew { .. })));
    }
}

#[test]
fn the_timestamp_does_not_matter_where_it_is_not_signed() {
    let scheme = hex(Signed::Body);
    let mut headers = signed_at(&scheme, &[ours()], NOW - 1_000_000);
    assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Ok(()));
    headers.remove("x-acme-timestamp");
    assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Ok(()));
}

#[test]
fn only_the_spelling_that_was_signed_is_a_timestamp() {
    for scheme in [SignatureScheme::Standard, hex(Signed::TimestampBody)] {
        let name = scheme.header_names().into_iter().find(|name| name.as_str().ends_with("timestamp")).unwrap();
        let mut headers = signed_at(&scheme, &[ours()], NOW);
        for text in ["", "+1700000000", "-1700000000", "01700000000", "1700000000.0", "1.7e9", "99999999999999999999"] {
            headers.insert(name.clone(), value(text));
            assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Err(VerifyError::TimestampInvalid), "{text:?}");
        }
    }
}

#[test]
fn headers_that_are_missing_repeated_or_no_text_are_named() {
    for scheme in [SignatureScheme::Standard, hex(Signed::TimestampBody)] {
        let needed = scheme.header_names().into_iter().filter(|name| !name.as_str().contains("event"));
        for name in needed {
            let genuine = signed_at(&scheme, &[ours()], NOW);
            let mut headers = genuine.clone();
            headers.remove(&name);
            assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Err(VerifyError::HeaderMissing(name.clone())));
            let mut headers = genuine.clone();
            headers.append(name.clone(), genuine[&name].clone());
            assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Err(VerifyError::HeaderRepeated(name.clone())));
            let mut headers = genuine.clone();
            headers.insert(name.clone(), HeaderValue::from_bytes(b"\xff").unwrap());
            assert_eq!(verify(&scheme, &[ours()], &headers, BODY), Err(VerifyError::HeaderInvalid(name.clone())));
        }
    }
    let mut headers = signed_at(&SignatureScheme::Standard, &[ours()], NOW);
    headers.remove(header("webhook-id"));
    let missing = Err(VerifyError::HeaderMissing(header("webhook-id")));
    assert_eq!(verify(&SignatureScheme::Standard, &[ours()], &headers, BODY), missing);
}

#[test]
fn malformed_signatures_are_told_from_wrong_ones() {
    let standard = SignatureScheme::Standard;
    let zeros = "A".repeat(43);
    for (text, expected) in [
        ("", VerifyError::SignatureMalformed),
        ("v1", VerifyError::SignatureMalformed),
        ("v1,", VerifyError::SignatureMalformed),
        ("v1,%%%", VerifyError::SignatureMalformed),
        ("v1,AAAA", VerifyError::SignatureMalformed),
        (&format!("v1,{zeros}="), VerifyError::SignatureMismatch),
    ] {
        let mut headers = signed_at(&standard, &[ours()], NOW);
        headers.insert("webhook-signature", value(text));
        assert_eq!(verify(&standard, &[ours()], &headers, BODY), Err(expected), "{text:?}");
    }
    let hex = hex(Signed::TimestampBody);
    let genuine = signed_at(&hex, &[ours()], NOW);
    let digits = genuine["x-acme-signature"].to_str().unwrap()["sha256=".len()..].to_owned();
    for (text, expected) in [
        (String::new(), VerifyError::SignatureMalformed),
        (digits.clone(), VerifyError::SignatureMalformed),
        (format!("sha1={digits}"), VerifyError::SignatureMalformed),
        (format!("sha256={}", &digits[1..]), VerifyError::SignatureMalformed),
        (format!("sha256={digits}0"), VerifyError::SignatureMalformed),
        (format!("sha256={}", digits.to_uppercase()), VerifyError::SignatureMalformed),
        (format!("sha256={}", "0".repeat(64)), VerifyError::SignatureMismatch),
    ] {
        let mut headers = genuine.clone();
        headers.insert("x-acme-signature", value(&text));
        assert_eq!(verify(&hex, &[ours()], &headers, BODY), Err(expected), "{text:?}");
    }
}

/// With a dot in the id, the parts of one genuine message could be put together to another that has the same signature.
#[test]
fn the_boundaries_between_the_signed_parts_cannot_be_moved() {
    let scheme = SignatureScheme::Standard;
    let message = Message { event_id: "evt_1", event_type: "a", timestamp: 1, body: b"1700000000.5" };
    let headers: HeaderMap = scheme.sign(&[ours()], &message).unwrap().into_iter().collect();
    let signature = headers["webhook-signature"].to_str().unwrap();
    let moved = Received { event_id: "evt_1.1", timestamp: "1700000000", signature, body: b"5" };
    assert_eq!(scheme.verify(&[ours()], &moved, NOW, DEFAULT_TOLERANCE), Err(VerifyError::EventIdInvalid));
}

#[test]
fn every_error_has_a_code_of_its_own() {
    let (by, tolerance) = (Duration::from_secs(400), DEFAULT_TOLERANCE);
    let errors = [
        VerifyError::SecretMissing,
        VerifyError::HeaderMissing(header("a")),
        VerifyError::HeaderRepeated(header("a")),
        VerifyError::HeaderInvalid(header("a")),
        VerifyError::EventIdInvalid,
        VerifyError::TimestampInvalid,
        VerifyError::TimestampTooOld { by, tolerance },
        VerifyError::TimestampTooNew { by, tolerance },
        VerifyError::SignatureMalformed,
        VerifyError::SignatureMismatch,
    ];
    let codes: std::collections::HashSet<_> = errors.iter().map(VerifyError::code).collect();
    assert_eq!(codes.len(), errors.len());
    assert_eq!(errors[6].to_string(), "the timestamp is 400 s in the past, 300 s are tolerated");
}

/// What may be altered on the way.
#[derive(Debug, Clone, Copy)]
enum Part {
    Id,
    Timestamp,
    Signature,
    Body,
}

fn flip(text: &mut [u8], bit: prop::sample::Index) {
    let bit = bit.index(text.len() * 8);
    text[bit / 8] ^= 1 << (bit % 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_flipped_bit_of_a_signed_part_gets_through(
        scheme in prop::sample::select(schemes().to_vec()),
        part in prop::sample::select(vec![Part::Id, Part::Timestamp, Part::Signature, Part::Body]),
        body in prop::collection::vec(any::<u8>(), 1..200),
        key in prop::collection::vec(any::<u8>(), 16..100),
        timestamp in 0..=4_000_000_000_i64,
        bit in any::<prop::sample::Index>(),
    ) {
        let covered = match (&scheme, part) {
            (SignatureScheme::Standard, _) | (_, Part::Signature | Part::Body) => true,
            (SignatureScheme::HmacSha256Hex { signed, .. }, Part::Timestamp) => *signed == Signed::TimestampBody,
            (SignatureScheme::HmacSha256Hex { .. }, Part::Id) => false,
        };
        let secrets = [Secret::from_bytes(key).unwrap()];
        let message = Message { event_id: EVENT_ID, event_type: "a", timestamp, body: &body };
        let headers = scheme.sign(&secrets, &message).unwrap();
        let signature = headers.last().unwrap().1.as_bytes().to_vec();
        let mut parts = [EVENT_ID.as_bytes().to_vec(), timestamp.to_string().into_bytes(), signature, body.clone()];

        // Long enough that a timestamp is never what is wrong.
        let tolerance = Duration::from_secs(u64::MAX);
        let genuine = verify_parts(&scheme, &secrets, &parts, tolerance);
        prop_assert_eq!(genuine, Some(Ok(())));
        flip(&mut parts[part as usize], bit);
        // Bytes that are no text cannot arrive as a header's text in the first place.
        if let Some(altered) = verify_parts(&scheme, &secrets, &parts, tolerance) {
            prop_assert_eq!(altered.is_err(), covered, "{:?}", altered);
        }
    }

    #[test]
    fn nothing_that_arrives_makes_verification_panic(
        scheme in prop::sample::select(schemes().to_vec()),
        event_id in any::<String>(), timestamp in any::<String>(), signature in any::<String>(),
        body in prop::collection::vec(any::<u8>(), 0..100), now in any::<i64>(),
    ) {
        let received = Received { event_id: &event_id, timestamp: &timestamp, signature: &signature, body: &body };
        prop_assert!(scheme.verify(&[ours()], &received, now, DEFAULT_TOLERANCE).is_err());
    }
}

fn verify_parts(
    scheme: &SignatureScheme,
    secrets: &[Secret],
    [event_id, timestamp, signature, body]: &[Vec<u8>; 4],
    tolerance: Duration,
) -> Option<Result<(), VerifyError>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let (event_id, timestamp, signature) = (text(event_id)?, text(timestamp)?, text(signature)?);
    Some(scheme.verify(secrets, &Received { event_id, timestamp, signature, body }, NOW, tolerance))
}
