//! Signature headers: what is signed verifies, also while a secret is rotated; and what nobody signed does not, however
//! much it looks the part.

use std::time::Duration;

use postrider::signature::{DEFAULT_TOLERANCE, Message, Received, Signed};
use postrider::{Secret, SignatureScheme};
use proptest::prelude::*;

use super::{cases, is_code};

const FOR_EVER: Duration = Duration::MAX;

fn secret() -> impl Strategy<Value = Secret> {
    prop::collection::vec(any::<u8>(), 16..=256).prop_map(|bytes| Secret::from_bytes(bytes).unwrap())
}

fn scheme() -> impl Strategy<Value = SignatureScheme> {
    let hex = |signed| move |prefix: String| SignatureScheme::hmac_sha256_hex(&format!("X-{prefix}-"), signed).unwrap();
    prop_oneof![
        Just(SignatureScheme::Standard),
        "[A-Za-z0-9]{1,20}".prop_map(hex(Signed::TimestampBody)),
        "[A-Za-z0-9]{1,20}".prop_map(hex(Signed::Body)),
    ]
}

/// Texts with the parts of a signature header in any order and number.
fn lookalike() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("v1,".to_owned()),
        Just("v1a,".to_owned()),
        Just("v2,".to_owned()),
        Just(" ".to_owned()),
        Just(",".to_owned()),
        Just("sha256=".to_owned()),
        Just("=".to_owned()),
        "[A-Za-z0-9+/]{0,44}={0,2}",
        "[0-9a-f]{64}",
        "[ -~]{0,6}",
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn what_is_signed_verifies_within_its_time_and_under_the_newest_secret(
        scheme in scheme(), secrets in prop::collection::vec(secret(), 1..4), stranger in secret(),
        id in "[!-\\-/-~]{1,64}", body in prop::collection::vec(any::<u8>(), 0..300),
        timestamp in 0..=i64::MAX, late in 0..=600_i64,
    ) {
        let message = Message { event_id: &id, event_type: "order.paid", timestamp, body: &body };
        let headers: http::HeaderMap = scheme.sign(&secrets, &message).unwrap().into_iter().collect();
        let verify = |with: &[Secret], body: &[u8], now: i64, tolerance| scheme.verify_headers(with, &headers, body, now, tolerance);
        prop_assert_eq!(verify(&secrets[..1], &body, timestamp, DEFAULT_TOLERANCE), Ok(()));
        prop_assert_eq!(verify(&[stranger.clone(), secrets[0].clone()], &body, timestamp, DEFAULT_TOLERANCE), Ok(()));
        // The standard scheme has room for all of them, the other for the newest.
        let oldest = verify(&secrets[secrets.len() - 1..], &body, timestamp, DEFAULT_TOLERANCE);
        prop_assert_eq!(oldest.is_ok(), scheme == SignatureScheme::Standard || secrets.len() == 1);
        if !secrets.contains(&stranger) {
            prop_assert_eq!(verify(&[stranger], &body, timestamp, FOR_EVER).unwrap_err().code(), "signature_mismatch");
        }
        let signs_time = !matches!(scheme, SignatureScheme::HmacSha256Hex { signed: Signed::Body, .. });
        let in_time = verify(&secrets, &body, timestamp.saturating_add(late), DEFAULT_TOLERANCE).is_ok();
        let lateness = timestamp.saturating_add(late) - timestamp;
        prop_assert_eq!(in_time, !signs_time || lateness <= 300);
        let mut longer = body.clone();
        longer.push(b'\n');
        prop_assert!(verify(&secrets, &longer, timestamp, FOR_EVER).is_err());
    }

    #[test]
    fn what_only_looks_like_a_signature_is_refused_by_a_code(
        scheme in scheme(), key in secret(), id in "[ -~]{0,40}", timestamp in "[0-9+ .-]{0,22}", signature in lookalike(),
        body in prop::collection::vec(any::<u8>(), 0..50), now in any::<i64>(),
    ) {
        let received = Received { event_id: &id, timestamp: &timestamp, signature: &signature, body: &body };
        let error = scheme.verify(&[key], &received, now, FOR_EVER).unwrap_err();
        prop_assert!(is_code(error.code()), "{}", error.code());
        prop_assert!(error.to_string().len() < 200);
    }

    #[test]
    fn a_scheme_survives_its_name_and_a_prefix_stays_in_its_bounds(name in "[a-z0-9-]{0,20}", prefix in any::<String>()) {
        if let Err(refusal) = name.parse::<SignatureScheme>() {
            prop_assert!(is_code(refusal.code));
        }
        match SignatureScheme::hmac_sha256_hex(&prefix, Signed::Body) {
            Ok(scheme) => prop_assert!(scheme.header_names().iter().all(|name| name.as_str().starts_with(&prefix.to_lowercase()))),
            Err(refusal) => prop_assert!(is_code(refusal.code)),
        }
    }
}
