//! What a server must refuse, over the wire of a real one: destinations, headers, bodies. Each refusal has a stable code,
//! nothing is stored, and the server goes on.

use postrider_promises::canary;
use postrider_promises::process::Workplace;
use serde_json::{Value, json};

use crate::stage::{Served, undisturbed};

/// Destinations in every forbidden class and spelling, at least one for each; the table of all spellings is the engine's.
const DESTINATIONS: &[(&str, &str)] = &[
    ("", "destination_empty"),
    ("ftp://good.com/", "destination_scheme"),
    ("file:///etc/passwd", "destination_scheme"),
    ("javascript:alert(1)", "destination_scheme"),
    ("gopher://good.com/", "destination_scheme"),
    ("//good.com/", "destination_scheme"),
    ("https://user:password@good.com/", "destination_user_info"),
    ("https://good.com@evil.com/", "destination_user_info"),
    ("https://good.com/#part", "destination_fragment"),
    ("https://good.com/\r\nHost: evil.com", "destination_control_character"),
    ("https://good.com/\u{0}", "destination_control_character"),
    ("https://good.com/a b", "destination_whitespace"),
    ("https://good.com\\@evil.com/", "destination_backslash"),
    ("https://bücher.example/", "destination_not_ascii"),
    ("http://１２７.0.0.1/", "destination_not_ascii"),
    ("http://127。0。0。1/", "destination_not_ascii"),
    ("https://good..com/", "destination_empty_label"),
    ("https://.good.com/", "destination_empty_label"),
    ("http://127.0.0.%31/", "destination_percent_encoded_host"),
    ("http://%31%32%37.0.0.1/", "destination_percent_encoded_host"),
    ("http://127.0.0.1/", "destination_loopback_address"),
    ("http://2130706433/", "destination_loopback_address"),
    ("http://0177.0.0.1/", "destination_loopback_address"),
    ("http://0x7f000001/", "destination_loopback_address"),
    ("http://127.1/", "destination_loopback_address"),
    ("http://0/", "destination_unspecified_address"),
    ("http://10.0.0.1/", "destination_private_address"),
    ("http://0xa.1/", "destination_private_address"),
    ("http://172.16.0.1/", "destination_private_address"),
    ("http://192.168.0.1/", "destination_private_address"),
    ("http://100.64.0.1/", "destination_shared_address"),
    ("http://169.254.1.1/", "destination_link_local_address"),
    ("http://169.254.169.254/latest/meta-data/", "destination_metadata_address"),
    ("http://0xa9fea9fe/", "destination_metadata_address"),
    ("http://198.18.0.1/", "destination_benchmark_address"),
    ("http://192.0.2.1/", "destination_documentation_address"),
    ("http://224.0.0.1/", "destination_multicast_address"),
    ("http://240.0.0.1/", "destination_reserved_address"),
    ("http://255.255.255.255/", "destination_broadcast_address"),
    ("http://[::1]/", "destination_loopback_address"),
    ("http://[::]/", "destination_unspecified_address"),
    ("http://[::ffff:127.0.0.1]/", "destination_mapped_address"),
    ("http://[::127.0.0.1]/", "destination_compatible_address"),
    ("http://[::ffff:0:127.0.0.1]/", "destination_translated_address"),
    ("http://[2002:7f00:1::]/", "destination_6to4_address"),
    ("http://[2001:0:7f00:1::]/", "destination_teredo_address"),
    ("http://[64:ff9b::127.0.0.1]/", "destination_nat64_address"),
    ("http://[fec0::1]/", "destination_site_local_address"),
    ("http://[fd00::1]/", "destination_unique_local_address"),
    ("http://[fe80::1]/", "destination_link_local_address"),
    ("http://[ff02::1]/", "destination_multicast_address"),
    ("http://[2001:db8::1]/", "destination_documentation_address"),
    ("http://[fd00:ec2::254]/", "destination_metadata_address"),
    ("http://localhost/", "destination_localhost_name"),
    ("http://a.localhost/", "destination_localhost_name"),
    ("http://metadata.google.internal/", "destination_metadata_name"),
    ("http://printer.local/", "destination_local_name"),
];

/// A server without anything open.
async fn closed() -> Served {
    Served::start(Workplace::on_sqlite().with("POSTRIDER_ALLOWED_NETWORKS", ""), &[]).await
}

async fn nothing_is_stored(served: &Served) {
    for path in ["/v1/events", "/v1/endpoints", "/v1/deliveries"] {
        assert_eq!(served.get(path).await["data"], json!([]), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn destinations_that_lead_inside_are_refused_wherever_they_are_named() {
    let _machine = undisturbed().await;
    let served = closed().await;
    let payload = json!({"canary": canary::PAYLOAD});
    let mut wrong = Vec::new();
    for (url, code) in DESTINATIONS {
        let endpoint = json!({"url": url});
        let event = json!({"type": "a.b", "payload": payload, "destination_url": url});
        let batch = json!([{"type": "a.b", "payload": payload}, event]);
        for (path, body) in [("/v1/endpoints", &endpoint), ("/v1/events", &event), ("/v1/events/batch", &batch)] {
            let (status, answer) = served.post(path, body.to_string()).await;
            if status != 422 || answer["code"] != *code {
                wrong.push(format!("{path} {url:?}: {code} was expected, and {status} {} came", answer["code"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_is_stored(&served).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_an_endpoint_that_would_change_the_request_are_refused() {
    let _machine = undisturbed().await;
    let served = closed().await;
    let reserved = [
        "Host",
        "host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "Upgrade",
        "Proxy-Authorization",
        "Proxy-Connection",
        "proxy-anything",
        "Webhook-Id",
        "webhook-timestamp",
        "WEBHOOK-SIGNATURE",
        "postrider-attempt",
        "Postrider-Delivery-Id",
        "Content-Type",
        "User-Agent",
        "TE",
        "Trailer",
        "Keep-Alive",
    ];
    let names = ["", "a b", "a:b", "a\r\nb", "a\nb", "a\0b", "ü", "a\u{7f}"];
    let values = ["a\r\nx: y", "a\nb", "a\rb", "a\0b", "\u{7f}", " a"];
    let mut cases: Vec<(String, String, &str)> = Vec::new();
    cases.extend(reserved.map(|name| (name.to_owned(), "value".to_owned(), "header_reserved")));
    cases.extend(names.map(|name| (name.to_owned(), "value".to_owned(), "header_name_invalid")));
    cases.extend(values.map(|value| ("x-good".to_owned(), value.to_owned(), "header_value_invalid")));
    cases.push(("x-good".to_owned(), "v".repeat(65_536), "header_value_too_long"));
    let mut wrong = Vec::new();
    for (name, value, code) in cases {
        let body = json!({"url": "https://good.com/", "headers": {&name: &value}});
        let (status, answer) = served.post("/v1/endpoints", body.to_string()).await;
        if status != 422 || answer["code"] != code {
            wrong.push(format!("{name:?}: {code} was expected, and {status} {answer} came"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_is_stored(&served).await;
}

/// What of the bodies and headers only a server as it is started shows: the limits as configured, and keys and ids of
/// unusual length.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_at_and_over_the_configured_limit_and_keys_used_twice() {
    let _machine = undisturbed().await;
    let workplace = Workplace::on_sqlite().with("POSTRIDER_MAX_PAYLOAD_BYTES", "1000");
    let served = Served::start(workplace, &["--no-dispatch"]).await;
    let event = |payload: &str| format!(r#"{{"type":"a.b","payload":{payload}}}"#);
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    #[rustfmt::skip]
    let cases: Vec<(&str, String, u16, &str)> = vec![
        ("one byte over", event(&text(1_001)), 413, "payload_too_large"),
        ("a megabyte", event(&text(1 << 20)), 413, "body_too_large"),
        ("empty", String::new(), 400, "body_empty"),
        ("nested", event(&format!("{}{}", "[".repeat(400), "]".repeat(400))), 422, "payload_too_deep"),
        ("an id with a dot", r#"{"type":"a.b","payload":1,"endpoint_id":"ep_1.2"}"#.to_owned(), 422, "field_invalid"),
        ("an id of 64 KB", format!(r#"{{"type":"a.b","payload":1,"endpoint_id":"ep_{}"}}"#, "0".repeat(60_000)), 422, "field_invalid"),
        ("a type of 64 KB", format!(r#"{{"type":"{}","payload":1}}"#, "a".repeat(60_000)), 422, "event_type_invalid"),
        ("a subject of 60 KB", format!(r#"{{"type":"a.b","payload":1,"once":{{"subject":"{}"}}}}"#, "s".repeat(60_000)), 422, "subject_invalid"),
    ];
    let mut wrong = Vec::new();
    for (name, body, status, code) in cases {
        let answer = served.post("/v1/events", body).await;
        if (answer.0, answer.1["code"].as_str()) != (status, Some(code)) {
            wrong.push(format!("{name}: {status} {code} was expected, and {} {} came", answer.0, answer.1));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    nothing_is_stored(&served).await;

    assert_eq!(served.post("/v1/events", event(&text(1_000))).await.0, 202, "what is at the limit is taken");
    let keyed =
        async |payload: &str| -> (u16, Value) { served.post_keyed("/v1/events", "order-1", event(payload)).await };
    assert_eq!(keyed("1").await.0, 202);
    let (status, again) = keyed("1").await;
    assert_eq!((status, &again["duplicate"]), (200, &json!(true)));
    let (status, other) = keyed("2").await;
    assert_eq!((status, &other["code"]), (409, &json!("idempotency_conflict")));
    // The same value in other bytes is another body.
    assert_eq!(keyed("1.0").await.0, 409);
    assert_eq!(served.get("/v1/events").await["data"].as_array().unwrap().len(), 2);
}
