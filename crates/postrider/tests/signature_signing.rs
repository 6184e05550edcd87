//! Signing: golden vectors that were computed with Python's `hmac`, the headers, and what cannot be signed.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use http::HeaderMap;
use postrider::signature::{HeaderPrefix, Message, Signed};
use postrider::{Refusal, Secret, SignatureScheme};

const NEWEST: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OLDER: &str = "another shared secret, much longer";
const EVENT_ID: &str = "evt_01h455vb4pex5vsknk084sn02q";
const TIMESTAMP: i64 = 1_700_000_000;
const BODY: &str = r#"{"invoice":"in_42","amount":1e400,"ü":"\u00fc"}"#;

const NEWEST_STANDARD: &str = "v1,O8rpyuXlkopKMIo6Nk0kTbDL39CZ3aMulLbNM6HfUQs=";
const OLDER_STANDARD: &str = "v1,e2h2yu7raOsJTzZHoy1l3QsG2p6Uf5dwUGSdvrttsUM=";
const NEWEST_TIMESTAMP_BODY: &str = "sha256=dd3e887d597767637123b26c6bbc19cb6e413804de1b3b5257f13c51d9845ab4";
const OLDER_TIMESTAMP_BODY: &str = "sha256=8efe78495d25bcb887a8d49cb250b09d68bc6049686c83d68e867efb411480b5";
const NEWEST_BODY: &str = "sha256=7aa546182434902b76053522febba80efc59455f429557f5a30d00d49b8ce729";

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::parse(text).unwrap()).collect()
}

fn message() -> Message<'static> {
    Message { event_id: EVENT_ID, event_type: "invoice.paid", timestamp: TIMESTAMP, body: BODY.as_bytes() }
}

fn hex(signed: Signed) -> SignatureScheme {
    SignatureScheme::hmac_sha256_hex("X-Acme-", signed).unwrap()
}

fn sign(scheme: &SignatureScheme, secrets: &[Secret], message: &Message<'_>) -> Result<Vec<(String, String)>, Refusal> {
    let text = |(name, value): (http::HeaderName, http::HeaderValue)| {
        (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
    };
    Ok(scheme.sign(secrets, message)?.into_iter().map(text).collect())
}

fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_standard_scheme_signs_id_timestamp_and_body() {
    let headers = sign(&SignatureScheme::Standard, &secrets(&[NEWEST]), &message()).unwrap();
    let expected =
        pairs(&[("webhook-id", EVENT_ID), ("webhook-timestamp", "1700000000"), ("webhook-signature", NEWEST_STANDARD)]);
    assert_eq!(headers, expected);
}

#[test]
fn every_current_secret_signs_in_the_standard_scheme() {
    let headers = sign(&SignatureScheme::Standard, &secrets(&[NEWEST, OLDER]), &message()).unwrap();
    assert_eq!(headers[2].1, format!("{NEWEST_STANDARD} {OLDER_STANDARD}"));
}

#[test]
fn the_example_of_the_standard_webhooks_library_comes_out_the_same() {
    let message = Message {
        event_id: "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        event_type: "user.created",
        timestamp: 1_649_367_553,
        body: br#"{"email":"test@example.com","username":"test_user"}"#,
    };
    let headers = sign(&SignatureScheme::Standard, &secrets(&[NEWEST]), &message).unwrap();
    assert_eq!(headers[2].1, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
}

#[test]
fn the_hex_scheme_signs_timestamp_and_body() {
    let headers = sign(&hex(Signed::TimestampBody), &secrets(&[NEWEST]), &message()).unwrap();
    let expected = pairs(&[
        ("x-acme-event-id", EVENT_ID),
        ("x-acme-event-type", "invoice.paid"),
        ("x-acme-timestamp", "1700000000"),
        ("x-acme-signature", NEWEST_TIMESTAMP_BODY),
    ]);
    assert_eq!(headers, expected);
    let headers = sign(&hex(Signed::TimestampBody), &secrets(&[OLDER]), &message()).unwrap();
    assert_eq!(headers[3].1, OLDER_TIMESTAMP_BODY);
}

#[test]
fn the_hex_scheme_may_sign_the_body_alone() {
    let headers = sign(&hex(Signed::Body), &secrets(&[NEWEST]), &message()).unwrap();
    assert_eq!(headers[3].1, NEWEST_BODY);
}

/// The first test case of RFC 4231.
#[test]
fn the_hex_scheme_is_hmac_sha256_by_the_book() {
    let secret = Secret::from_bytes(vec![0x0b; 20]).unwrap();
    let message = Message { body: b"Hi There", ..message() };
    let headers = sign(&hex(Signed::Body), &[secret], &message).unwrap();
    assert_eq!(headers[3].1, "sha256=b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

#[test]
fn only_the_newest_secret_signs_in_the_hex_scheme() {
    let headers = sign(&hex(Signed::TimestampBody), &secrets(&[NEWEST, OLDER]), &message()).unwrap();
    assert_eq!(headers[3].1, NEWEST_TIMESTAMP_BODY);
    let headers = sign(&hex(Signed::TimestampBody), &secrets(&[OLDER, NEWEST]), &message()).unwrap();
    assert_eq!(headers[3].1, OLDER_TIMESTAMP_BODY);
}

#[test]
fn a_scheme_names_the_headers_that_it_sets() {
    for scheme in [SignatureScheme::Standard, hex(Signed::Body)] {
        let set: Vec<_> =
            scheme.sign(&secrets(&[NEWEST]), &message()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(scheme.header_names(), set);
    }
}

#[test]
fn an_independent_library_verifies_what_we_sign() {
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let message = Message { timestamp: now, ..message() };
    let signers = secrets(&[NEWEST, OLDER]);
    let headers: HeaderMap = SignatureScheme::Standard.sign(&signers, &message).unwrap().into_iter().collect();
    for secret in &signers {
        let receiver = standardwebhooks::Webhook::new(&secret.reveal()).unwrap();
        receiver.verify(BODY.as_bytes(), &headers).unwrap();
        assert!(receiver.verify(b"{}", &headers).is_err());
    }
    let stranger = standardwebhooks::Webhook::new(&Secret::generate().reveal()).unwrap();
    assert!(stranger.verify(BODY.as_bytes(), &headers).is_err());
}

#[test]
fn what_cannot_be_signed_is_refused() {
    let code = |scheme: &SignatureScheme, secrets: &[Secret], message: Message<'_>| {
        scheme.sign(secrets, &message).unwrap_err().code
    };
    let one = secrets(&[NEWEST]);
    let standard = SignatureScheme::Standard;
    for scheme in [&standard, &hex(Signed::Body)] {
        assert_eq!(code(scheme, &[], message()), "signature_secret_missing");
        for event_id in ["", "evt.1", "evt 1", "evt\r\nx: y", "evt_ü", &"a".repeat(256)] {
            assert_eq!(
                code(scheme, &one, Message { event_id, ..message() }),
                "signature_event_id_invalid",
                "{event_id}"
            );
        }
        assert_eq!(code(scheme, &one, Message { timestamp: -1, ..message() }), "signature_timestamp_invalid");
    }
    let message = Message { event_type: "a\r\nb", ..message() };
    assert_eq!(code(&hex(Signed::Body), &one, message), "signature_event_type_invalid");
}

#[test]
fn a_header_prefix_is_checked() {
    for prefix in ["", "X Acme-", "X-Acme:", "X-Äcme-", "X-Acme-\r\n", "X/", &"x".repeat(65)] {
        let refusal = prefix.parse::<HeaderPrefix>().unwrap_err();
        assert_eq!((refusal.code, refusal.field), ("signature_header_prefix_invalid", "header_prefix"), "{prefix:?}");
    }
    for prefix in ["webhook-", "Webhook-", "postrider-", "Proxy-", "Sec-", "WEBHOOK-x-"] {
        assert_eq!(prefix.parse::<HeaderPrefix>().unwrap_err().code, "signature_header_prefix_reserved", "{prefix}");
    }
    for prefix in ["X-Acme-Hook-", "x", "Acme_", &"x".repeat(64)] {
        assert_eq!(prefix.parse::<HeaderPrefix>().unwrap().as_str(), prefix);
    }
}

#[test]
fn schemes_survive_their_text_and_their_json() {
    assert_eq!("standard".parse(), Ok(SignatureScheme::Standard));
    let default_hex = SignatureScheme::hmac_sha256_hex("X-Webhook-", Signed::TimestampBody).unwrap();
    assert_eq!("hmac-sha256-hex".parse(), Ok(default_hex.clone()));
    assert_eq!(default_hex.to_string(), "hmac-sha256-hex");
    assert_eq!(SignatureScheme::default().to_string(), "standard");

    for scheme in [SignatureScheme::Standard, hex(Signed::Body), hex(Signed::TimestampBody), default_hex.clone()] {
        let json = serde_json::to_string(&scheme).unwrap();
        assert_eq!(serde_json::from_str::<SignatureScheme>(&json).unwrap(), scheme, "{json}");
    }
    assert_eq!(serde_json::to_string(&SignatureScheme::Standard).unwrap(), r#""standard""#);
    let json = r#"{"scheme":"hmac-sha256-hex","header_prefix":"X-Acme-","signed":"body"}"#;
    assert_eq!(serde_json::to_string(&hex(Signed::Body)).unwrap(), json);
    let short: SignatureScheme = serde_json::from_str(r#"{"scheme":"hmac-sha256-hex"}"#).unwrap();
    assert_eq!(short, default_hex);
    assert_eq!(serde_json::from_str::<SignatureScheme>(r#"{"scheme":"standard"}"#).unwrap(), SignatureScheme::Standard);
}

#[test]
fn what_is_no_scheme_is_refused() {
    let parts = SignatureScheme::from_parts;
    assert_eq!(parts("md5", None, None).unwrap_err().code, "signature_scheme_unknown");
    assert_eq!(parts("standard", Some("X-"), None).unwrap_err().code, "signature_parameter_unused");
    assert_eq!(parts("standard", None, Some("body")).unwrap_err().code, "signature_parameter_unused");
    assert_eq!(parts("hmac-sha256-hex", None, Some("all")).unwrap_err().code, "signature_signed_unknown");
    assert_eq!(parts("hmac-sha256-hex", Some(""), None).unwrap_err().code, "signature_header_prefix_invalid");
    for (json, said) in [
        (r#""md5""#, "signature_scheme_unknown"),
        (r#"{"scheme":"hmac-sha256-hex","header_prefix":"a b"}"#, "signature_header_prefix_invalid"),
        (r#"{"scheme":"hmac-sha256-hex","prefix":"X-"}"#, "a signature is"),
        ("17", "a signature is"),
    ] {
        let error = serde_json::from_str::<SignatureScheme>(json).unwrap_err().to_string();
        assert!(error.contains(said), "{json}: {error}");
    }
}
