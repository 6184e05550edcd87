//! Document 002, flow 1: a payment request is bound to its destination when it is made.

use serde_json::json;

use crate::support::{World, address, client};

#[tokio::test]
async fn doc_002_flow_1_a_request_is_bound_to_its_canonical_destination() {
    let world = World::new().await;
    let api = world.server().await;
    for (given, stored) in [
        ("https://hooks.example.com/payments?a=1", "https://hooks.example.com/payments?a=1"),
        ("HTTPS://Hooks.Example.COM:443", "https://hooks.example.com/"),
        ("http://a.good.com./x/../y", "http://a.good.com/y"),
    ] {
        let (status, made) = api.create(json!({"webhook_url": given})).await;
        assert_eq!((status, made["webhook_url"].as_str()), (201, Some(stored)), "{made}");
        assert_eq!(made["status"], "pending");
        let (status, shown) = api.get(&format!("/v1/payment-requests/{}", made["id"].as_str().unwrap())).await;
        assert_eq!((status, shown), (200, made));
    }
    assert_eq!(world.count("payments.requests").await, 3);
}

#[tokio::test]
async fn doc_002_api_a_missing_webhook_url_has_a_code_of_its_own() {
    let world = World::new().await;
    let api = world.server().await;
    for missing in [json!(null), json!(""), json!("  ")] {
        let (status, problem) = api.create(json!({"webhook_url": missing})).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("webhook_url_required")), "{problem}");
        assert_eq!(problem["errors"][0]["field"], "webhook_url");
    }
    assert_eq!(world.count("payments.requests").await, 0, "nothing is stored");
}

#[tokio::test]
async fn doc_002_api_a_host_off_the_allowlist_has_a_code_of_its_own() {
    let world = World::new().await;
    let api = world.server().await;
    for url in [
        "https://elsewhere.com/",
        "https://evilgood.com/",
        "https://good.com/",
        "https://a.good.com.evil.com/",
        "https://hooks.example.com.evil.com/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data/",
    ] {
        let (status, problem) = api.create(json!({"webhook_url": url})).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("webhook_url_not_allowed")), "{url}: {problem}");
    }
    assert_eq!(world.count("payments.requests").await, 0, "nothing is stored");
}

#[tokio::test]
async fn doc_002_security_every_scheme_but_http_and_https_is_refused() {
    let world = World::new().await;
    let api = world.server().await;
    for url in [
        json!("ftp://hooks.example.com/"),
        json!("file:///etc/passwd"),
        json!("javascript:alert(1)"),
        json!("hooks.example.com/payments"),
        json!("https://user:password@hooks.example.com/"),
        json!("https://hooks.example.com/#fragment"),
        json!("https://hooks.example.com:0/"),
        json!("https://hooks.example.com\\@evil.com/"),
        json!(42),
        json!({"url": "https://hooks.example.com/"}),
    ] {
        let (status, problem) = api.create(json!({"webhook_url": url})).await;
        assert_eq!((status, problem["code"].as_str()), (422, Some("webhook_url_invalid")), "{url}: {problem}");
    }
    assert_eq!(world.count("payments.requests").await, 0, "nothing is stored");
}

#[tokio::test]
async fn doc_002_observability_refusals_at_creation_are_logged_with_their_code() {
    let world = World::new().await;
    let api = world.server().await;
    api.create(json!({"webhook_url": null})).await;
    api.create(json!({"webhook_url": "https://elsewhere.com/canary"})).await;
    api.process.says(&["refused", "webhook_url_required"]).await;
    api.process.says(&["refused", "webhook_url_not_allowed"]).await;
    assert!(!api.process.log().contains("canary"), "{}", api.process.log());
}

#[tokio::test]
async fn what_else_is_wrong_with_a_request_is_said_with_a_code() {
    let world = World::new().await;
    let api = world.server().await;
    for (changes, status, code) in [
        (json!({"address": "0x12"}), 422, "address_invalid"),
        (json!({"address": format!("0x{}", "g".repeat(40))}), 422, "address_invalid"),
        (json!({"amount_wei": "0"}), 422, "amount_wei_invalid"),
        (json!({"amount_wei": "+1"}), 422, "amount_wei_invalid"),
        (json!({"amount_wei": "1.5"}), 422, "amount_wei_invalid"),
        (json!({"amount_wei": "1".repeat(40)}), 422, "amount_wei_invalid"),
        (json!({"amount_wei": 1}), 400, "body_invalid"),
        (json!({"address": null}), 400, "body_invalid"),
        (json!({"surprise": 1}), 400, "body_invalid"),
        (json!({"expires_in": "0s"}), 422, "expires_in_invalid"),
        (json!({"expires_in": "31d"}), 422, "expires_in_invalid"),
        (json!({"expires_in": "soon"}), 422, "expires_in_invalid"),
    ] {
        let (got, problem) = api.create(changes.clone()).await;
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{changes}: {problem}");
    }
    let taken = address();
    assert_eq!(api.create(json!({"address": taken})).await.0, 201);
    let (status, problem) = api.create(json!({"address": taken.to_uppercase().replace("0X", "0x")})).await;
    assert_eq!((status, problem["code"].as_str()), (409, Some("address_in_use")));

    let url = format!("{}/v1/payment-requests", api.url);
    for (content_type, body, status, code) in [
        ("application/json", "{".to_owned(), 400, "body_invalid"),
        ("application/json", "[]".to_owned(), 400, "body_invalid"),
        // The fields in their order are not an object.
        (
            "application/json",
            json!([address(), "1", "https://hooks.example.com/", null]).to_string(),
            400,
            "body_invalid",
        ),
        ("text/plain", "{}".to_owned(), 415, "content_type_invalid"),
        ("application/json", format!("\"{}\"", "x".repeat(20_000)), 413, "body_too_large"),
    ] {
        let response = client().post(&url).header("content-type", content_type).body(body).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.headers()["content-type"].to_str().unwrap()),
            (status, "application/problem+json")
        );
        let problem: serde_json::Value = response.json().await.unwrap();
        assert_eq!(problem["code"], code);
    }
    for path in ["/v1/payment-requests/nonsense", "/v1/payment-requests/00000000-0000-0000-0000-000000000000"] {
        let (status, problem) = api.get(path).await;
        assert_eq!((status, problem["code"].as_str()), (404, Some("payment_request_not_found")));
    }
    assert_eq!(api.get("/elsewhere").await.1["code"], "route_not_found");
    assert_eq!(api.get("/v1/payment-requests").await.1["code"], "method_not_allowed");
    assert_eq!(world.count("payments.requests").await, 1);
}

#[tokio::test]
async fn doc_002_api_the_description_says_that_webhook_url_is_required() {
    let world = World::new().await;
    let api = world.server().await;
    let (status, openapi) = api.get("/openapi.json").await;
    assert_eq!(status, 200);
    let required = openapi["components"]["schemas"]["NewPaymentRequest"]["required"].as_array().unwrap();
    assert!(required.contains(&json!("webhook_url")), "{required:?}");
    assert!(openapi["paths"]["/v1/payment-requests"]["post"].is_object());
    assert!(openapi["paths"]["/v1/payment-requests/{id}"]["get"].is_object());
}
