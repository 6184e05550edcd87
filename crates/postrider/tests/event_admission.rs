//! Admission: every reason for which an event is not taken, every limit at it and one over, and what makes two events
//! the same.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use postrider::{Admission, AdmittedEvent, NewEvent, Refusal};
use proptest::prelude::*;
use serde_json::{Value, json};

fn event() -> NewEvent {
    NewEvent::new("invoice.paid", "{}")
}

fn admit(event: NewEvent) -> Result<AdmittedEvent, Refusal> {
    Admission::default().admit(event)
}

fn with_payload(payload: impl Into<bytes::Bytes>) -> Result<AdmittedEvent, Refusal> {
    admit(NewEvent::new("invoice.paid", payload))
}

/// Code and field of the refusal.
fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>) -> (&'static str, &'static str) {
    let refusal = result.unwrap_err();
    (refusal.code, refusal.field)
}

#[test]
fn event_types_are_parts_joined_by_dots() {
    for event_type in ["a", "invoice.paid", "A-b_c:d/e.1", &"a".repeat(255)] {
        assert!(admit(NewEvent::new(event_type, "{}")).is_ok(), "{event_type}");
    }
    for event_type in ["", ".", "a.", ".a", "a..b", "a b", "a\n", "ä", "a*", "invoice.*", "a\0", &"a".repeat(256)] {
        let result = admit(NewEvent::new(event_type, "{}"));
        assert_eq!(refused(result), ("event_type_invalid", "type"), "{event_type:?}");
    }
}

#[test]
fn a_refused_event_type_is_not_repeated_at_length() {
    let refusal = admit(NewEvent::new("x".repeat(65_536), "{}")).unwrap_err();
    assert!(refusal.detail.len() < 300, "{}", refusal.detail.len());
}

#[test]
fn names_have_1_to_255_printable_characters() {
    type Name = (&'static str, &'static str, fn(NewEvent, &str) -> NewEvent);
    let names: [Name; 3] = [
        ("tenant_invalid", "tenant", |event, name| event.tenant(name)),
        ("topic_invalid", "topic", |event, name| event.topic(name)),
        ("idempotency_key_invalid", "idempotency_key", |event, name| event.idempotency_key(name)),
    ];
    for (code, field, set) in names {
        for name in ["a", "in_42/paid", "a b", "a.b:c", &"a".repeat(255)] {
            assert!(admit(set(event(), name)).is_ok(), "{field} {name}");
        }
        for name in ["", " ", " a", "a ", "a\tb", "a\r\nb", "a\0", "ä", &"a".repeat(256), &"a".repeat(65_536)] {
            assert_eq!(refused(admit(set(event(), name))), (code, field), "{name:?}");
        }
    }
}

#[test]
fn a_payload_is_taken_up_to_its_limit() {
    let admission = Admission { max_payload_bytes: 10, ..Admission::default() };
    let admit = |payload: &'static str| admission.admit(NewEvent::new("a", payload));
    assert!(admit("\"12345678\"").is_ok());
    assert_eq!(refused(admit("\"123456789\"")), ("payload_too_large", "payload"));

    let text = |length: usize| format!("\"{}\"", "a".repeat(length - 2));
    assert!(with_payload(text(262_144)).is_ok());
    assert_eq!(refused(with_payload(text(262_145))), ("payload_too_large", "payload"));
}

#[test]
fn the_size_is_checked_before_anything_else_is_read() {
    assert_eq!(refused(with_payload(vec![0xff; 262_145])).0, "payload_too_large");
}

#[test]
fn whatever_the_grammar_allows_is_kept_byte_for_byte() {
    for payload in [
        "{}",
        "[]",
        "null",
        "true",
        "0",
        "\"\"",
        " \t\r\n{ \"b\" : 1 , \"a\" : 2 }\n",
        r#"{"a":1,"a":2}"#,
        "1e400",
        "-1E-400",
        "123456789012345678901234567890.000",
        r#""\u0000\ud83d\ude00\uD83D\uDE00\/\b""#,
        r#""\\ud800 is a backslash and text, \\\\uDFFF too""#,
        "\"\u{7f}\u{feff}\u{10ffff}\"",
        r#""[[[{{{ \" ]]]""#,
    ] {
        let admitted = with_payload(payload).unwrap_or_else(|refusal| panic!("{payload}: {refusal}"));
        assert_eq!(admitted.event().payload, payload.as_bytes());
    }
}

#[test]
fn what_is_not_one_json_value_is_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "payload_empty"),
        (b" ", "payload_not_json"),
        (b"{", "payload_not_json"),
        (b"{]", "payload_not_json"),
        (b"[1,]", "payload_not_json"),
        (b"{\"a\":1,}", "payload_not_json"),
        (b"{a:1}", "payload_not_json"),
        (b"'a'", "payload_not_json"),
        (b"NaN", "payload_not_json"),
        (b"Infinity", "payload_not_json"),
        (b"01", "payload_not_json"),
        (b"+1", "payload_not_json"),
        (b".5", "payload_not_json"),
        (b"1.", "payload_not_json"),
        (b"1e", "payload_not_json"),
        (b"tru", "payload_not_json"),
        (b"\"\\x41\"", "payload_not_json"),
        (b"\"\\u12\"", "payload_not_json"),
        (b"\"a\nb\"", "payload_not_json"),
        (b"\"a\0b\"", "payload_not_json"),
        (b"\0", "payload_not_json"),
        (b"// a\n1", "payload_not_json"),
        (b"\"open", "payload_not_json"),
        (b"{}{}", "payload_trailing_data"),
        (b"{} x", "payload_trailing_data"),
        (b"1 2", "payload_trailing_data"),
        (b"{}\0", "payload_trailing_data"),
        (b"{}\n]", "payload_trailing_data"),
        (b"\xff", "payload_not_utf8"),
        (b"\"\xc3\"", "payload_not_utf8"),
        (b"\"\xed\xa0\x80\"", "payload_not_utf8"),
        (b"\"\xc0\x80\"", "payload_not_utf8"),
        (b"\xff\xfe{\0}\0", "payload_not_utf8"),
        (b"\xef\xbb\xbf{}", "payload_byte_order_mark"),
        (b"\xef\xbb\xbf", "payload_byte_order_mark"),
        (br#""\ud800""#, "payload_lone_surrogate"),
        (br#""\uDBFF""#, "payload_lone_surrogate"),
        (br#""\udc00""#, "payload_lone_surrogate"),
        (br#""\ude00\ud83d""#, "payload_lone_surrogate"),
        (br#""\ud83d\ud83d\ude00""#, "payload_lone_surrogate"),
        (br#""\ud83dx\ude00""#, "payload_lone_surrogate"),
        (br#""\ud83d\\ude00""#, "payload_lone_surrogate"),
        (br#""\ud83d\n""#, "payload_lone_surrogate"),
        (br#"{"\ud800":1}"#, "payload_lone_surrogate"),
        (br#"["a\\",{"b":"\\\udfff"}]"#, "payload_lone_surrogate"),
    ];
    for (payload, code) in cases {
        let result = with_payload(payload.to_vec());
        let shown = String::from_utf8_lossy(payload);
        assert_eq!(refused(result), (*code, "payload"), "{shown:?}");
    }
}

fn nested(open: &str, depth: usize, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn nesting_is_taken_up_to_its_limit() {
    for (open, repeated, close) in [("[", 100, "]"), ("{\"[\":", 100, "}"), ("[{\"a\":", 50, "}]")] {
        let at_limit = nested(open, repeated, "1", close);
        assert!(with_payload(at_limit.clone()).is_ok(), "{open}");
        assert_eq!(refused(with_payload(format!("[{at_limit}]"))), ("payload_too_deep", "payload"), "{open}");
    }
    // Side by side is not deep.
    assert!(with_payload(format!("[{}[]]", "[],".repeat(50_000))).is_ok());
}

#[test]
fn what_is_admitted_is_not_too_deep_for_a_common_parser() {
    let payload = nested("[", 100, "", "]");
    assert!(with_payload(payload.clone()).is_ok());
    assert!(serde_json::from_str::<Value>(&payload).is_ok());
}

/// On a thread with a small stack: a check that recursed once per level would end the process.
#[test]
fn nesting_of_100_000_is_refused_without_exhausting_the_stack() {
    let check = || {
        assert_eq!(refused(with_payload(nested("[", 100_000, "", "]"))).0, "payload_too_deep");
        assert_eq!(refused(with_payload("[".repeat(100_000))).0, "payload_not_json");
        assert_eq!(refused(with_payload("{\"a\":".repeat(50_000))).0, "payload_not_json");
        let objects = Admission { max_payload_bytes: 1 << 20, ..Admission::default() };
        let objects = objects.admit(NewEvent::new("a", nested("{\"a\":", 100_000, "1", "}")));
        assert_eq!(refused(objects).0, "payload_too_deep");
    };
    std::thread::Builder::new().stack_size(256 * 1024).spawn(check).unwrap().join().unwrap();
}

#[test]
fn refusals_and_debug_output_never_repeat_the_payload() {
    for payload in [
        r#"{"canary":"#,
        "\"canary\" canary",
        "canary",
        "\u{feff}\"canary\"",
        r#""canary\ud800canary""#,
        &nested("[\"canary\",", 101, "1", "]"),
    ] {
        let refusal = with_payload(payload.to_owned()).unwrap_err();
        assert!(!format!("{refusal:?} {refusal}").contains("canary"), "{refusal:?}");
    }
    let mut bytes = b"\"canary".to_vec();
    bytes.push(0xff);
    assert!(!format!("{:?}", with_payload(bytes).unwrap_err()).contains("canary"));
    assert!(!format!("{:?}", with_payload("\"canary\"").unwrap()).contains("canary"));
}

#[test]
fn metadata_is_taken_up_to_its_limit() {
    // {"a":"…"} has eight characters around the text.
    assert!(admit(event().metadata("a", "x".repeat(16_384 - 8))).is_ok());
    let over = admit(event().metadata("a", "x".repeat(16_384 - 7)));
    assert_eq!(refused(over), ("metadata_too_large", "metadata"));
}

#[test]
fn metadata_has_no_nul_in_any_text_or_name() {
    for (name, value) in
        [("a", json!("\0")), ("a\0", json!(1)), ("a", json!(["b", { "c": "d\0" }])), ("a", json!({ "b\0": 1 }))]
    {
        assert_eq!(refused(admit(event().metadata(name, value.clone()))), ("metadata_invalid", "metadata"), "{value}");
    }
}

/// Whoever may send must not be able to write what nobody can read.
#[test]
fn metadata_has_no_number_that_a_store_could_not_read_again() {
    for value in [json!(f64::MAX), json!([{ "a": -1.1e308 }])] {
        assert_eq!(refused(admit(event().metadata("a", value.clone()))), ("metadata_invalid", "metadata"), "{value}");
    }
    assert!(admit(event().metadata("a", json!([1e308, -1e308, u64::MAX, i64::MIN, 5e-324]))).is_ok());
}

#[test]
fn metadata_may_speak_of_nul_without_containing_it() {
    assert!(admit(event().metadata("a", "\\u0000")).is_ok());
}

#[test]
fn metadata_is_nested_up_to_its_limit() {
    let nested = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    assert!(admit(event().metadata("a", nested(99))).is_ok());
    assert_eq!(refused(admit(event().metadata("a", nested(100)))), ("metadata_too_deep", "metadata"));
}

#[test]
fn a_destination_is_vetted_and_kept_in_canonical_form() {
    let admitted = admit(event().to("HTTPS://Good.com:443")).unwrap();
    assert_eq!(admitted.destination().unwrap().as_str(), "https://good.com/");
    assert_eq!(admitted.event().destination_url.as_deref(), Some("HTTPS://Good.com:443"));
    assert!(admit(event()).unwrap().destination().is_none());
    assert_eq!(refused(admit(event().to("http://10.0.0.1/"))), ("destination_private_address", "destination_url"));
    assert_eq!(refused(admit(event().to(""))), ("destination_empty", "destination_url"));
}

fn fingerprint(event: NewEvent) -> [u8; 32] {
    admit(event).unwrap().fingerprint()
}

#[test]
fn the_same_content_has_the_same_fingerprint() {
    let full = || {
        event().to("https://good.com/").deliver_at(Timestamp::UNIX_EPOCH).topic("t").metadata("a", 1).metadata("b", 2)
    };
    assert_eq!(fingerprint(full()), fingerprint(full()));
    // The order in which facts were added, the spelling of the destination and the key itself are not content.
    let other_order = event()
        .metadata("b", 2)
        .metadata("a", 1)
        .topic("t")
        .deliver_at(Timestamp::UNIX_EPOCH)
        .to("https://GOOD.com:443");
    assert_eq!(fingerprint(full()), fingerprint(other_order.idempotency_key("k")));
}

#[test]
fn every_part_of_the_content_changes_the_fingerprint() {
    let second = Timestamp::from_second(1).unwrap();
    let events = [
        event(),
        NewEvent::new("invoice.sent", "{}"),
        NewEvent::new("invoice.paid", "{ }"),
        event().to("https://good.com/"),
        event().to("https://good.com/a"),
        event().deliver_at(Timestamp::UNIX_EPOCH),
        event().deliver_at(second),
        event().topic("other"),
        event().metadata("a", 1),
        event().metadata("a", "1"),
        event().metadata("b", 1),
    ];
    let distinct: std::collections::HashSet<_> = events.iter().cloned().map(fingerprint).collect();
    assert_eq!(distinct.len(), events.len());
}

#[test]
fn parts_of_a_fingerprint_do_not_run_into_each_other() {
    assert_ne!(fingerprint(NewEvent::new("a1", "2")), fingerprint(NewEvent::new("a", "12")));
}

/// Idempotency keys outlive versions, so a fingerprint must stay what it was. Computed with Python's hashlib.
#[test]
fn a_fingerprint_is_pinned() {
    let event = NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#)
        .to("https://good.com/")
        .deliver_at(Timestamp::UNIX_EPOCH)
        .metadata("a", 1);
    assert_eq!(STANDARD.encode(fingerprint(event)), "kxMwbtK9515oj9vQByi/EJ19SdVfI9DxabSzbcnicxU=");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn what_a_parser_can_hold_is_admitted_and_the_rest_never_panics(
        text in r#"[\[\]{}",:0-9a\\u d8cfe]{0,24}"#,
    ) {
        let admitted = with_payload(text.clone()).is_ok();
        // Short texts have no deep nesting, and these characters make no number that is too large to hold.
        let parsed = serde_json::from_str::<Value>(&text);
        let out_of_range = parsed.as_ref().is_err_and(|error| error.to_string().contains("number out of range"));
        prop_assert!(admitted == parsed.is_ok() || out_of_range, "{:?}: {:?}", text, parsed);
    }

    #[test]
    fn strings_of_escapes_are_judged_as_a_parser_judges_them(
        parts in prop::collection::vec(
            prop::sample::select(vec![r"\ud83d", r"\ude00", r"\uDBFF", r"\uDC00", r"\\", r#"\""#, r"\u0041", "u", "d800", "["]),
            0..12,
        ),
    ) {
        let text = format!("\"{}\"", parts.concat());
        prop_assert_eq!(with_payload(text.clone()).is_ok(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
    }

    #[test]
    fn arbitrary_bytes_never_panic(payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = with_payload(payload);
    }
}
