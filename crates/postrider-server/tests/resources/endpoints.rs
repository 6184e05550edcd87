//! Endpoints: what is taken, what is shown, what is refused.

use postrider::Scope;
use serde_json::{Value, json};

use crate::stage::{Ask, Stage, text};

fn path(endpoint: &Value) -> String {
    format!("/v1/endpoints/{}", text(&endpoint["id"]))
}

#[tokio::test]
async fn an_endpoint_is_shown_as_it_was_registered_and_its_secret_only_once() {
    let stage = Stage::quiet().await;
    let created = stage
        .endpoint(json!({
            "url": "https://Hooks.Example.com/billing",
            "event_types": ["invoice.*"],
            "retry_schedule": ["30s", "1h30m"],
            "max_attempts": 4,
            "max_in_flight": 2,
            "rate_limit": "100/s",
            "timeout": "1500ms",
            "signature": {"scheme": "hmac-sha256-hex", "header_prefix": "X-Acme-"},
            "headers": {"X-Team": "billing", "Authorization": "Bearer canary"},
            "description": "the billing team's",
        }))
        .await;
    let secret = text(&created["secret"]).to_owned();
    assert!(secret.starts_with("whsec_") && secret.len() > 40, "{created}");
    let mut expected = json!({
        "id": created["id"],
        "tenant": "default",
        "url": "https://hooks.example.com/billing",
        "event_types": ["invoice.*"],
        "status": "active",
        "status_reason": null,
        "failing_since": null,
        "retry_schedule": ["30s", "1h30m"],
        "max_attempts": 4,
        "max_in_flight": 2,
        "rate_limit": "100/s",
        "timeout": "1s500ms",
        "signature": {"scheme": "hmac-sha256-hex", "header_prefix": "X-Acme-", "signed": "timestamp.body"},
        "headers": {"authorization": "****", "x-team": "billing"},
        "description": "the billing team's",
        "secrets_retiring_until": null,
        "trouble": null,
        "revision": created["revision"],
        "created_at": created["created_at"],
    });
    let shown = stage.expect(200, "GET", &path(&created), None).await;
    assert_eq!(shown, expected);
    expected["secret"] = json!(secret);
    assert_eq!(created, expected);

    let listed = stage.ask("GET", "/v1/endpoints", None).await;
    assert_eq!(listed.body, json!({"data": [shown], "next_cursor": null}));
    let bare = secret.trim_start_matches("whsec_");
    assert!(!listed.text.contains(bare) && !listed.text.contains("canary"), "{}", listed.text);
    let audit = stage.ask("GET", "/v1/audit", None).await;
    assert_eq!(audit.body["data"][0]["action"], "endpoint.create", "{}", audit.text);
    assert!(!audit.text.contains(bare) && !audit.text.contains("canary"));
}

#[tokio::test]
async fn what_is_not_said_is_the_servers_default() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/", "event_types": ["*"]})).await;
    for field in ["retry_schedule", "max_attempts", "max_in_flight", "rate_limit", "timeout", "signature"] {
        assert_eq!(created[field], Value::Null, "{field}");
    }
    assert_eq!(created["headers"], json!({}));
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/", "secret": "a shared plain secret"})).await;
    assert_eq!(created["event_types"], json!(["*"]), "everything, unless it says otherwise");
    assert_eq!(created["secret"], postrider::Secret::parse("a shared plain secret").unwrap().reveal());
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_null_is_the_default_again() {
    let stage = Stage::quiet().await;
    let created = stage
        .endpoint(json!({"url": "https://hooks.example.com/", "event_types": ["a"], "timeout": "5s", "max_attempts": 9,
            "headers": {"x-team": "a"}}))
        .await;
    let patch =
        json!({"url": "https://other.example.com/in", "event_types": ["b.*"], "timeout": null, "description": "new"});
    let changed = stage.expect(200, "PATCH", &path(&created), Some(patch)).await;
    let mut expected = created.clone();
    expected.as_object_mut().unwrap().remove("secret");
    expected["url"] = json!("https://other.example.com/in");
    expected["event_types"] = json!(["b.*"]);
    expected["timeout"] = Value::Null;
    expected["description"] = json!("new");
    expected["revision"] = changed["revision"].clone();
    assert_eq!(changed, expected);
    assert!(changed["revision"].as_u64() > created["revision"].as_u64());
    assert_eq!(stage.expect(200, "GET", &path(&created), None).await, expected);
    let unchanged = stage.expect(200, "PATCH", &path(&created), Some(json!({}))).await;
    assert_eq!(unchanged["url"], expected["url"]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_field_and_nothing_is_stored() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let headers = |name: &str, value: &str| json!({"headers": {name: value}});
    for (fields, code, field) in [
        (json!({"url": "ftp://hooks.example.com/"}), "destination_scheme", "url"),
        (json!({"url": "http://10.0.0.1/"}), "destination_private_address", "url"),
        (json!({"url": "https://user:canary@hooks.example.com/"}), "destination_user_info", "url"),
        (json!({"event_types": []}), "event_types_count_invalid", "event_types"),
        (json!({"event_types": ["in*voice"]}), "event_type_pattern_invalid", "event_types"),
        (json!({"retry_schedule": ["soon"]}), "retry_delay_invalid", "retry_schedule[0]"),
        (json!({"max_attempts": 0}), "max_attempts_out_of_range", "max_attempts"),
        (json!({"max_attempts": 1001}), "max_attempts_out_of_range", "max_attempts"),
        (json!({"max_in_flight": 0}), "max_in_flight_out_of_range", "max_in_flight"),
        (json!({"rate_limit": "1/d"}), "rate_limit_invalid", "rate_limit"),
        (json!({"timeout": "2h"}), "timeout_out_of_range", "timeout"),
        (json!({"signature": "rot13"}), "signature_scheme_unknown", "signature"),
        (headers("x\r\nhost", "a"), "header_name_invalid", "headers"),
        (headers("x:y", "a"), "header_name_invalid", "headers"),
        (headers("x-team", "a\r\nhost: b"), "header_value_invalid", "headers"),
        (headers("x-team", "a\0"), "header_value_invalid", "headers"),
        (headers("Host", "a"), "header_reserved", "headers"),
        (headers("content-length", "0"), "header_reserved", "headers"),
        (headers("Transfer-Encoding", "chunked"), "header_reserved", "headers"),
        (headers("webhook-signature", "v1,"), "header_reserved", "headers"),
        (json!({"description": "x".repeat(1001)}), "description_invalid", "description"),
    ] {
        let mut new = json!({"url": "https://hooks.example.com/"});
        new.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        for (method, path, body) in
            [("POST", "/v1/endpoints".to_owned(), new), ("PATCH", path(&created), fields.clone())]
        {
            let answer = stage.ask(method, &path, Some(body)).await;
            assert_eq!(answer.problem(), (422, code), "{method} {fields}: {}", answer.text);
            assert_eq!(answer.body["errors"][0]["field"], field, "{}", answer.text);
            assert!(!answer.text.contains("canary"), "{}", answer.text);
        }
    }
    let answer =
        stage.ask("POST", "/v1/endpoints", Some(json!({"url": "https://a.example/", "secret": "canary"}))).await;
    assert_eq!(answer.problem(), (422, "secret_invalid"));
    assert!(!answer.text.contains("canary"), "{}", answer.text);
    let listed = stage.expect(200, "GET", "/v1/endpoints", None).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1);
    assert_eq!(listed["data"][0]["revision"], created["revision"]);
}

#[tokio::test]
async fn lists_are_in_pages_and_by_status() {
    let stage = Stage::quiet().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let created = stage.endpoint(json!({"url": format!("https://hooks.example.com/{n}")})).await;
        ids.insert(0, text(&created["id"]).to_owned());
    }
    let mut seen = Vec::new();
    let mut next = "/v1/endpoints?limit=2".to_owned();
    for _ in 0..3 {
        let page = stage.expect(200, "GET", &next, None).await;
        seen.extend(page["data"].as_array().unwrap().iter().map(|endpoint| text(&endpoint["id"]).to_owned()));
        next = format!("/v1/endpoints?limit=2&cursor={}", page["next_cursor"].as_str().unwrap_or("end"));
    }
    assert_eq!(seen, ids, "newest first, each once");
    assert!(next.ends_with("end"));

    stage.expect(200, "POST", &format!("/v1/endpoints/{}/pause", ids[1]), None).await;
    let paused = stage.expect(200, "GET", "/v1/endpoints?status=paused", None).await;
    assert_eq!(paused["data"].as_array().unwrap().len(), 1);
    assert_eq!(paused["data"][0]["id"], ids[1]);
    for (query, status, code) in [
        ("status=asleep", 422, "endpoint_status_invalid"),
        ("limit=0", 422, "limit_invalid"),
        ("limit=251", 422, "limit_invalid"),
        ("cursor=x", 422, "cursor_invalid"),
        ("stauts=paused", 400, "query_invalid"),
    ] {
        let answer = stage.ask("GET", &format!("/v1/endpoints?{query}"), None).await;
        assert_eq!(answer.problem(), (status, code), "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn an_endpoint_is_paused_with_a_reason_and_resumed() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let reason = json!({"reason": "it moves house"});
    let paused = stage.expect(200, "POST", &format!("{}/pause", path(&created)), Some(reason)).await;
    assert_eq!((&paused["status"], &paused["status_reason"]), (&json!("paused"), &json!("it moves house")));
    let audit = stage.expect(200, "GET", "/v1/audit?limit=1", None).await;
    let entry = &audit["data"][0];
    assert_eq!((&entry["action"], &entry["reason"]), (&json!("endpoint.pause"), &json!("it moves house")));
    assert_eq!(entry["subject"], created["id"]);
    assert!(text(&entry["operator"]).contains("key_"), "{entry}");
    let resumed = stage.expect(200, "POST", &format!("{}/resume", path(&created)), None).await;
    assert_eq!((&resumed["status"], &resumed["status_reason"]), (&json!("active"), &Value::Null));

    let long = json!({"reason": "x".repeat(1001)});
    let answer = stage.ask("POST", &format!("{}/pause", path(&created)), Some(long)).await;
    assert_eq!(answer.problem(), (422, "reason_invalid"));
    let answer = stage.ask("POST", &format!("{}/pause", path(&created)), Some(json!({"because": "x"}))).await;
    assert_eq!(answer.problem(), (422, "field_unknown"));
}

#[tokio::test]
async fn a_removed_endpoint_is_gone_and_what_waited_for_it_is_cancelled() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let event = stage.event("invoice.paid", json!({})).await;
    let delivery = text(&event["deliveries"][0]["id"]).to_owned();
    let answer = stage.ask("DELETE", &path(&created), None).await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    for (method, suffix) in [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/rotate-secret"),
        ("POST", "/test"),
    ] {
        let answer = stage.ask(method, &format!("{}{suffix}", path(&created)), None).await;
        assert_eq!(answer.problem(), (404, "endpoint_not_found"), "{method} {suffix}");
    }
    let delivery = stage.expect(200, "GET", &format!("/v1/deliveries/{delivery}"), None).await;
    assert_eq!(delivery["status"], "cancelled");
    let event = stage.event("invoice.paid", json!({})).await;
    assert_eq!(event["deliveries"], json!([]), "no event reaches it");
}

#[tokio::test]
async fn concurrent_patches_all_take_effect() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let path = path(&created);
    let patches = [
        json!({"max_attempts": 7}),
        json!({"timeout": "9s"}),
        json!({"rate_limit": "5/s"}),
        json!({"description": "d"}),
    ];
    let asked =
        futures_util::future::join_all(patches.iter().map(|patch| stage.ask("PATCH", &path, Some(patch.clone()))))
            .await;
    let refused = asked.iter().filter(|answer| answer.status != 200).collect::<Vec<_>>();
    assert!(refused.is_empty(), "{refused:?}");
    let shown = stage.expect(200, "GET", &path, None).await;
    assert_eq!(shown["max_attempts"], 7);
    assert_eq!(shown["timeout"], "9s");
    assert_eq!(shown["rate_limit"], "5/s");
    assert_eq!(shown["description"], "d");
}

#[tokio::test]
async fn ids_that_are_none_are_told_so() {
    let stage = Stage::quiet().await;
    let event = stage.event("invoice.paid", json!({})).await;
    for id in ["x", "ep_", text(&event["id"]), "ep_0190.5d2", &"x".repeat(6_000)] {
        let answer = stage.ask("GET", &format!("/v1/endpoints/{id}"), None).await;
        assert_eq!(answer.problem(), (400, "id_invalid"), "{}", answer.text);
        assert!(answer.text.len() < 1_000);
    }
    let answer = stage.ask("GET", "/v1/endpoints/ep_01jd8x4k2hf4xr5zt3yq7m9nbw", None).await;
    assert_eq!(answer.problem(), (404, "endpoint_not_found"));
    let answer = stage.ask("PUT", "/v1/endpoints/ep_01jd8x4k2hf4xr5zt3yq7m9nbw", None).await;
    assert_eq!(answer.problem(), (405, "method_not_allowed"));
}

#[tokio::test]
async fn looking_needs_a_key_that_may_look_and_changing_one_that_may_change() {
    let stage = Stage::quiet().await;
    let reader = stage.key(Some("default"), Scope::Read).await;
    let body = json!({"url": "https://hooks.example.com/"});
    let answer = stage.ask_with(&reader, "POST", "/v1/endpoints", Some(body.clone())).await;
    assert_eq!(answer.problem(), (403, "scope_insufficient"));
    assert_eq!(stage.ask_with(&reader, "GET", "/v1/endpoints", None).await.status, 200);
    let answer = stage.send(Ask::new("POST", "/v1/endpoints").json(&body)).await;
    assert_eq!(answer.problem(), (401, "key_missing"));
    assert_eq!(answer.headers["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn an_endpoint_whose_secret_cannot_be_opened_is_shown_and_not_overwritten() {
    let mut stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/", "description": "kept"})).await;
    stage.restart_with_another_secret_key().await;
    let shown = stage.expect(200, "GET", &path(&created), None).await;
    assert!(text(&shown["trouble"]).contains("secret_key_unknown"), "{shown}");
    for (method, path) in [("PATCH", path(&created)), ("POST", format!("{}/rotate-secret", path(&created)))] {
        let answer = stage.ask(method, &path, Some(json!({}))).await;
        assert_eq!(answer.problem(), (409, "endpoint_unreadable"), "{method}: {}", answer.text);
    }
    assert_eq!(stage.ask("DELETE", &path(&created), None).await.status, 204, "it can be removed");
}

#[tokio::test]
async fn a_null_where_something_must_be_is_refused() {
    let stage = Stage::quiet().await;
    let created = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let answer = stage.ask("PATCH", &path(&created), Some(json!({"url": null}))).await;
    assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!("url")), "{}", answer.text);
    let paused = stage.expect(200, "POST", &format!("{}/pause", path(&created)), Some(Value::Null)).await;
    assert_eq!(paused["status"], "paused", "a body that may be left out may be null");
}
