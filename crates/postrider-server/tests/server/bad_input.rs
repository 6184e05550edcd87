//! Bad bodies and headers: each gets a clear 4xx with a stable code, nothing is stored, and the server goes on.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::Api;

/// The most that a single event's body may have: the payload's limit and what may be beside it.
const MOST_BYTES: usize = 262_144 + 65_536;

fn post(api: &Api, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n{headers}\r\n",
        api.address, api.admin
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn with_length(api: &Api, content_type: &str, body: &[u8]) -> Vec<u8> {
    post(api, &format!("{content_type}content-length: {}\r\n", body.len()), body)
}

const JSON: &str = "content-type: application/json\r\n";

fn event(payload: &str) -> Vec<u8> {
    format!(r#"{{"type":"a.b","payload":{payload}}}"#).into_bytes()
}

/// A body of exactly this many bytes, most of them white space beside the payload.
fn event_of(bytes: usize) -> Vec<u8> {
    let mut body = event("1");
    body.resize(bytes, b' ');
    body
}

fn chunked(bytes: usize) -> Vec<u8> {
    let mut body = String::new();
    let chunk = " ".repeat(1_024);
    for _ in 0..bytes / 1_024 {
        let _ = write!(body, "400\r\n{chunk}\r\n");
    }
    body.push_str("0\r\n\r\n");
    body.into_bytes()
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn bodies_that_are_no_events_are_refused() {
    let api = Api::start().await;
    let deep = nested(100_000);
    let long = format!("\"{}\"", "x".repeat(262_144 - 1));
    let text = |text: &str| text.as_bytes().to_vec();
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("empty", text(""), 400, "body_empty"),
        ("only spaces", text("   "), 400, "body_not_json"),
        ("not JSON", text("type=a.b"), 400, "body_not_json"),
        ("cut off", text(r#"{"type":"a.b","payload":1"#), 400, "body_not_json"),
        ("trailing data", text(r#"{"type":"a.b","payload":1} {}"#), 400, "body_trailing_data"),
        ("trailing comma", text(r#"{"type":"a.b","payload":1,}"#), 400, "body_not_json"),
        ("invalid UTF-8", b"{\"type\":\"a.b\",\"payload\":\"\xff\"}".to_vec(), 400, "body_not_utf8"),
        ("overlong UTF-8", b"{\"type\":\"a.b\",\"payload\":\"\xc0\xaf\"}".to_vec(), 400, "body_not_utf8"),
        ("a byte order mark", text("\u{feff}{\"type\":\"a.b\",\"payload\":1}"), 400, "body_byte_order_mark"),
        ("a NUL in a string", text("{\"type\":\"a.b\",\"payload\":\"\0\"}"), 400, "body_not_json"),
        ("a NUL after the end", text("{\"type\":\"a.b\",\"payload\":1}\0"), 400, "body_trailing_data"),
        ("half a pair in a field", text(r#"{"type":"a.b","payload":1,"topic":"\ud800"}"#), 400, "body_lone_surrogate"),
        ("half a pair in the payload", event(r#""\ud800""#), 422, "payload_lone_surrogate"),
        ("the other half in the payload", event(r#"{"\udc00":1}"#), 422, "payload_lone_surrogate"),
        ("deep payload", event(&deep), 422, "payload_too_deep"),
        (
            "deep metadata",
            text(&format!(r#"{{"type":"a.b","payload":1,"metadata":{{"a":{deep}}}}}"#)),
            400,
            "body_too_deep",
        ),
        ("deep instead of an object", text(&deep), 422, "field_invalid"),
        ("a repeated field", text(r#"{"type":"a.b","payload":1,"type":"c.d"}"#), 422, "field_repeated"),
        ("a repeated payload", text(r#"{"type":"a.b","payload":1,"payload":1}"#), 422, "field_repeated"),
        ("an unknown field", text(r#"{"type":"a.b","payload":1,"destination":"x"}"#), 422, "field_unknown"),
        (
            "an unknown field inside",
            text(r#"{"type":"a.b","payload":1,"once":{"subject":"s","x":1}}"#),
            422,
            "field_unknown",
        ),
        ("no payload", text(r#"{"type":"a.b"}"#), 422, "field_missing"),
        ("no type", text(r#"{"payload":1}"#), 422, "field_missing"),
        ("a type that is a number", text(r#"{"type":1,"payload":1}"#), 422, "field_invalid"),
        ("a type that is null", text(r#"{"type":null,"payload":1}"#), 422, "field_invalid"),
        ("a type with a space", text(r#"{"type":"a b","payload":1}"#), 422, "event_type_invalid"),
        ("an array", text("[]"), 422, "field_invalid"),
        ("an array of the fields", text(r#"["a.b",1]"#), 422, "field_invalid"),
        ("an array for once", text(r#"{"type":"a.b","payload":1,"once":["plan/1"]}"#), 422, "field_invalid"),
        ("a string", text("\"a\""), 422, "field_invalid"),
        (
            "generation 0",
            text(r#"{"type":"a.b","payload":1,"once":{"subject":"s","generation":0}}"#),
            422,
            "generation_invalid",
        ),
        (
            "generation out of range",
            text(r#"{"type":"a.b","payload":1,"once":{"subject":"s","generation":18446744073709551616}}"#),
            422,
            "field_invalid",
        ),
        (
            "generation below zero",
            text(r#"{"type":"a.b","payload":1,"once":{"subject":"s","generation":-1}}"#),
            422,
            "field_invalid",
        ),
        (
            "generation 1e400",
            text(r#"{"type":"a.b","payload":1,"once":{"subject":"s","generation":1e400}}"#),
            400,
            "body_not_json",
        ),
        ("metadata 1e400", text(r#"{"type":"a.b","payload":1,"metadata":{"a":1e400}}"#), 400, "body_not_json"),
        ("metadata that is a list", text(r#"{"type":"a.b","payload":1,"metadata":[]}"#), 422, "field_invalid"),
        ("metadata with NUL", text(r#"{"type":"a.b","payload":1,"metadata":{"a":"\u0000"}}"#), 422, "metadata_invalid"),
        (
            "an instant that is none",
            text(r#"{"type":"a.b","payload":1,"deliver_at":"tomorrow"}"#),
            422,
            "field_invalid",
        ),
        (
            "an instant beyond time",
            text(r#"{"type":"a.b","payload":1,"deliver_at":"99999-01-01T00:00:00Z"}"#),
            422,
            "field_invalid",
        ),
        ("an endpoint with a dot", text(r#"{"type":"a.b","payload":1,"endpoint_id":"ep.1"}"#), 422, "field_invalid"),
        (
            "a private destination",
            text(r#"{"type":"a.b","payload":1,"destination_url":"http://127.0.0.1/"}"#),
            422,
            "destination_loopback_address",
        ),
        ("a long payload", event(&long), 413, "payload_too_large"),
        ("one byte over", event_of(MOST_BYTES + 1), 413, "body_too_large"),
        ("far over", event_of(MOST_BYTES * 8), 413, "body_too_large"),
    ];
    for (name, body, status, code) in cases {
        let answer = api.raw(&with_length(&api, JSON, &body)).await;
        let problem = answer.json();
        assert_eq!((answer.status, problem["code"].as_str()), (status, Some(code)), "{name}: {answer:?}");
        assert!(answer.head.contains("content-type: application/problem+json"), "{name}: {}", answer.head);
        assert!(problem["request_id"].is_string(), "{name}");
        assert_eq!(problem["status"], status, "{name}");
    }
    assert_eq!(api.get("/v1/events").await.1["data"], Value::Array(Vec::new()), "nothing was stored");

    let at_the_limit = api.raw(&with_length(&api, JSON, &event_of(MOST_BYTES))).await;
    assert_eq!(at_the_limit.status, 202, "{at_the_limit:?}");
    let largest = api.raw(&with_length(&api, JSON, &event(&format!("\"{}\"", "x".repeat(262_144 - 2))))).await;
    assert_eq!(largest.status, 202, "{largest:?}");
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn bodies_that_are_not_what_their_headers_say_are_refused() {
    let api = Api::start().await;
    let good = event("1");
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("no content type", with_length(&api, "", &good), 415, "content_type_unsupported"),
        ("text", with_length(&api, "content-type: text/plain\r\n", &good), 415, "content_type_unsupported"),
        (
            "a form",
            with_length(&api, "content-type: application/x-www-form-urlencoded\r\n", &good),
            415,
            "content_type_unsupported",
        ),
        (
            "latin-1",
            with_length(&api, "content-type: application/json; charset=iso-8859-1\r\n", &good),
            415,
            "content_type_unsupported",
        ),
        (
            "two types",
            with_length(&api, "content-type: application/json\r\ncontent-type: text/plain\r\n", &good),
            415,
            "content_type_unsupported",
        ),
        (
            "gzip",
            with_length(&api, &format!("{JSON}content-encoding: gzip\r\n"), &good),
            415,
            "content_type_unsupported",
        ),
        (
            "chunked over the limit",
            post(&api, &format!("{JSON}transfer-encoding: chunked\r\n"), &chunked(MOST_BYTES + 2_048)),
            413,
            "body_too_large",
        ),
        (
            "a chunk that is none",
            post(&api, &format!("{JSON}transfer-encoding: chunked\r\n"), b"zz\r\nabc\r\n0\r\n\r\n"),
            400,
            "body_incomplete",
        ),
        (
            "a length that is none",
            post(&api, &format!("{JSON}content-length: ten\r\n"), &good),
            400,
            "request_malformed",
        ),
        (
            "two lengths",
            post(&api, &format!("{JSON}content-length: 5\r\ncontent-length: 6\r\n"), &good),
            400,
            "request_malformed",
        ),
        (
            "a length that is too short",
            post(&api, &format!("{JSON}content-length: 10\r\n"), &good),
            400,
            "body_not_json",
        ),
        (
            "a length beyond measure",
            post(&api, &format!("{JSON}content-length: 1000000000000\r\n"), &good),
            413,
            "body_too_large",
        ),
        (
            "two idempotency keys",
            with_length(&api, &format!("{JSON}idempotency-key: a\r\nidempotency-key: b\r\n"), &good),
            422,
            "idempotency_key_invalid",
        ),
        (
            "an empty idempotency key",
            with_length(&api, &format!("{JSON}idempotency-key: \r\n"), &good),
            422,
            "idempotency_key_invalid",
        ),
        (
            "a long idempotency key",
            with_length(&api, &format!("{JSON}idempotency-key: {}\r\n", "k".repeat(256)), &good),
            422,
            "idempotency_key_invalid",
        ),
        ("a header with NUL", with_length(&api, &format!("{JSON}x-odd: a\0b\r\n"), &good), 400, "request_malformed"),
        (
            "a header of 40 KB",
            with_length(&api, &format!("{JSON}x-odd: {}\r\n", "x".repeat(40_000)), &good),
            431,
            "headers_too_large",
        ),
        (
            "a header of 1 MB",
            with_length(&api, &format!("{JSON}x-odd: {}\r\n", "x".repeat(1_000_000)), &good),
            431,
            "headers_too_large",
        ),
        (
            "many headers",
            with_length(&api, &format!("{JSON}{}", "x-odd: 1\r\n".repeat(200)), &good),
            431,
            "headers_too_large",
        ),
        ("not HTTP", b"hello there, server\r\n\r\n".to_vec(), 400, "request_malformed"),
    ];
    for (name, bytes, status, code) in cases {
        let answer = api.raw(&bytes).await;
        assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{name}: {answer:?}");
        assert!(answer.head.contains("content-type: application/problem+json"), "{name}: {}", answer.head);
    }
    let accepted = with_length(&api, "content-type: Application/JSON; charset=\"UTF-8\"\r\n", &good);
    assert_eq!(api.raw(&accepted).await.status, 202);
    assert_eq!(api.get("/v1/events").await.1["data"].as_array().unwrap().len(), 1, "nothing else was stored");
}

/// A client that promises more than it sends is answered when its time is over, or not at all; nothing is stored.
#[tokio::test]
async fn a_body_that_breaks_off_stores_nothing() {
    let api = Api::start().await;
    let body = event("1");
    let bytes = post(&api, &format!("{JSON}content-length: {}\r\n", body.len() + 1), &body);
    {
        use tokio::io::AsyncWriteExt as _;
        let mut stream = tokio::net::TcpStream::connect(api.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = crate::support::Raw::read(&mut stream).await;
        assert!(answer.status == 400 || answer.status == 0, "{answer:?}");
    }
    assert_eq!(api.get("/v1/events").await.1["data"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn request_lines_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    let long = "x".repeat(65_536);
    let cases: Vec<(&str, String, u16, &str)> = vec![
        ("GET", "/v1/events/evt_".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/evt.01".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/..".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/%2e%2e%2fkeys".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/%00".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/%ff".to_owned(), 400, "path_invalid"),
        ("GET", format!("/v1/events/{}", &long[..1_000]), 400, "id_invalid"),
        ("GET", format!("/v1/events/{}", &long[..10_000]), 414, "uri_too_long"),
        ("GET", format!("/v1/events/{long}"), 414, "uri_too_long"),
        ("GET", "/v1/events/dlv_01k2b7wq6se3yv5r3q8h0m4d9x".to_owned(), 400, "id_invalid"),
        ("GET", "/v1/events/evt_01k2b7wq6se3yv5r3q8h0m4d9x".to_owned(), 404, "event_not_found"),
        ("GET", "/v1/events?limit=0".to_owned(), 422, "limit_invalid"),
        ("GET", "/v1/events?limit=251".to_owned(), 422, "limit_invalid"),
        ("GET", "/v1/events?limit=-1".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/events?limit=ten".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/events?limit=99999999999".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/events?limit=1&limit=2".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/events?cursor=what".to_owned(), 422, "cursor_invalid"),
        ("GET", "/v1/events?cursor=".to_owned(), 422, "cursor_invalid"),
        ("GET", "/v1/events?since=yesterday".to_owned(), 422, "instant_invalid"),
        ("GET", "/v1/events?typ=a.b".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/events/evt_01k2b7wq6se3yv5r3q8h0m4d9x?a=b".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/overview?a".to_owned(), 400, "query_invalid"),
        ("GET", "/v1/nothing".to_owned(), 404, "route_unknown"),
        ("GET", "/v2/events".to_owned(), 404, "route_unknown"),
        ("GET", "/v1/events/".to_owned(), 404, "route_unknown"),
        ("GET", "//v1/events".to_owned(), 404, "route_unknown"),
        ("DELETE", "/v1/events".to_owned(), 405, "method_not_allowed"),
        ("PUT", "/v1/overview".to_owned(), 405, "method_not_allowed"),
        ("BREW", "/v1/events".to_owned(), 405, "method_not_allowed"),
        ("POST", "/metrics".to_owned(), 405, "method_not_allowed"),
    ];
    for (method, target, status, code) in cases {
        let shown: String = target.chars().take(80).collect();
        let bytes = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            api.address, api.admin
        );
        let answer = api.raw(bytes.as_bytes()).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (status, Some(code)),
            "{method} {shown}: {answer:?}"
        );
        if status == 405 {
            assert!(answer.head.contains("\r\nallow: "), "{method} {shown}: {}", answer.head);
        }
    }
    assert_eq!(api.get("/v1/events").await.0, 200, "the server goes on");
}

#[tokio::test]
async fn problems_name_the_field_and_never_quote_a_value() {
    let api = Api::start().await;
    let canary = "canary-7f3c";
    for (body, field) in [
        (
            format!(r#"{{"type":"a.b","payload":1,"once":{{"subject":"s","generation":"{canary}"}}}}"#),
            "once.generation",
        ),
        (format!(r#"{{"type":"a.b","payload":1,"metadata":"{canary}"}}"#), "metadata"),
        (format!(r#"{{"type":"a.b","payload":1,"once":"{canary}"}}"#), "once"),
    ] {
        let (status, problem) = api.post("/v1/events", body).await;
        assert_eq!((status, problem["errors"][0]["field"].as_str()), (422, Some(field)), "{problem}");
        assert!(!problem.to_string().contains(canary), "{problem}");
    }
    let (_, problem) = api.post("/v1/events/batch", r#"[{"type":"a.b","payload":1},{"type":7}]"#).await;
    assert_eq!(problem["errors"][0]["field"], "[1].type", "{problem}");
    let (_, problem) = api.get("/v1/events?limit=canary").await;
    assert_eq!(problem["errors"][0]["field"], "limit", "{problem}");
}
