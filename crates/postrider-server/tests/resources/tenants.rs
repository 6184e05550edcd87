//! A tenant never sees nor touches another's things: every route and method here, with the other's ids and keys of every scope.

use postrider::Scope;
use serde_json::{Value, json};

use crate::stage::{Ask, Stage, text};

/// What one tenant has.
struct Things {
    endpoint: String,
    delivery: String,
    cancelled: String,
    key: String,
}

/// What each route is asked, with which body, and the scope that it needs.
fn asks(things: &Things) -> Vec<(&'static str, String, Option<Value>, Scope)> {
    let Things { endpoint, delivery, cancelled, key } = things;
    let mut asks = vec![
        ("GET", format!("/v1/endpoints/{endpoint}"), None, Scope::Read),
        ("GET", format!("/v1/deliveries/{delivery}"), None, Scope::Read),
        ("GET", format!("/v1/deliveries/{delivery}/why"), None, Scope::Read),
        ("GET", "/v1/once/plan/123".to_owned(), None, Scope::Read),
        ("PATCH", format!("/v1/endpoints/{endpoint}"), Some(json!({"description": "mine"})), Scope::Write),
        ("POST", format!("/v1/endpoints/{endpoint}/pause"), None, Scope::Write),
        ("POST", format!("/v1/endpoints/{endpoint}/resume"), None, Scope::Write),
        ("POST", format!("/v1/endpoints/{endpoint}/rotate-secret"), None, Scope::Write),
        ("POST", format!("/v1/endpoints/{endpoint}/test"), None, Scope::Write),
        ("POST", format!("/v1/deliveries/{cancelled}/retry"), None, Scope::Write),
        ("POST", format!("/v1/deliveries/{delivery}/cancel"), None, Scope::Write),
        ("DELETE", format!("/v1/keys/{key}"), None, Scope::Admin),
    ];
    asks.push(("DELETE", format!("/v1/endpoints/{endpoint}"), None, Scope::Write));
    asks
}

async fn with_things(stage: &Stage, tenant: &str) -> Things {
    let writer = stage.key(Some(tenant), Scope::Write).await;
    let ask = async |method: &str, path: &str, body: Value| {
        let answer = stage.ask_with(&writer, method, path, Some(body)).await;
        assert!(answer.status < 300, "{}", answer.text);
        answer.body
    };
    let endpoint = ask("POST", "/v1/endpoints", json!({"url": "https://hooks.example.com/"})).await;
    let once = json!({"type": "plan.due", "payload": {}, "once": {"subject": "plan/123"}});
    let event = ask("POST", "/v1/events", once).await;
    let other = ask("POST", "/v1/events", json!({"type": "plan.due", "payload": {}})).await;
    let cancelled = text(&other["deliveries"][0]["id"]).to_owned();
    ask("POST", &format!("/v1/deliveries/{cancelled}/cancel"), json!({})).await;
    let key = json!({"name": "to be revoked", "tenant": tenant, "scope": "read"});
    let key = stage.expect(201, "POST", "/v1/keys", Some(key)).await;
    Things {
        endpoint: text(&endpoint["id"]).to_owned(),
        delivery: text(&event["deliveries"][0]["id"]).to_owned(),
        cancelled,
        key: text(&key["id"]).to_owned(),
    }
}

#[tokio::test]
async fn p21_somebody_elses_things_are_not_there_whatever_the_scope() {
    let stage = Stage::quiet().await;
    let acme = with_things(&stage, "acme").await;
    for scope in Scope::ALL {
        let stranger = stage.key(Some("globex"), scope).await;
        for (method, path, body, needed) in asks(&acme) {
            let answer = stage.ask_with(&stranger, method, &path, body).await;
            let (status, code) = answer.problem();
            if scope < needed {
                assert_eq!((status, code), (403, "scope_insufficient"), "{scope} {method} {path}: {}", answer.text);
            } else {
                assert!(status == 404 && code.ends_with("_not_found"), "{scope} {method} {path}: {}", answer.text);
            }
        }
        for path in ["/v1/endpoints", "/v1/deliveries", &format!("/v1/deliveries?endpoint_id={}", acme.endpoint)] {
            let answer = stage.ask_with(&stranger, "GET", path, None).await;
            assert_eq!(answer.body, json!({"data": [], "next_cursor": null}), "{scope} {path}");
        }
    }
    let admin = stage.key(Some("globex"), Scope::Admin).await;
    let audit = stage.ask_with(&admin, "GET", "/v1/audit", None).await;
    let tenants: Vec<_> = audit.body["data"].as_array().unwrap().iter().map(|entry| &entry["tenant"]).collect();
    assert!(!tenants.is_empty() && tenants.iter().all(|tenant| **tenant == json!("globex")), "{}", audit.text);
    let bulk = json!({"status": "cancelled"});
    let answer = stage.ask_with(&admin, "POST", "/v1/deliveries/retry", Some(bulk)).await;
    assert_eq!(answer.body, json!({"matched": 0, "retried": 0}));
    let reset = stage.ask_with(&admin, "POST", "/v1/once/plan/123/reset", None).await;
    assert_eq!(reset.body["tenant"], "globex", "a subject of the same name is another subject");

    // Nothing of all this has touched what is acme's.
    let own = stage.key(Some("acme"), Scope::Admin).await;
    let ask = async |path: &str| stage.ask_with(&own, "GET", path, None).await.body;
    let endpoint = ask(&format!("/v1/endpoints/{}", acme.endpoint)).await;
    assert_eq!((&endpoint["status"], &endpoint["description"]), (&json!("active"), &json!("")));
    assert_eq!(endpoint["secrets_retiring_until"], Value::Null);
    assert_eq!(ask(&format!("/v1/deliveries/{}", acme.delivery)).await["status"], "pending");
    assert_eq!(ask(&format!("/v1/deliveries/{}", acme.cancelled)).await["status"], "cancelled");
    assert_eq!(ask("/v1/once/plan/123").await["generation"], 1);
    assert_eq!(ask("/v1/deliveries").await["data"].as_array().unwrap().len(), 2, "no test event");
    let keys = ask("/v1/keys").await;
    assert!(keys["data"].as_array().unwrap().iter().all(|key| key["revoked_at"].is_null()), "{keys}");
}

#[tokio::test]
async fn ones_own_things_are_there_for_every_scope_that_is_enough() {
    let stage = Stage::quiet().await;
    for scope in Scope::ALL {
        let acme = with_things(&stage, &format!("acme-{scope}")).await;
        let own = stage.key(Some(&format!("acme-{scope}")), scope).await;
        for (method, path, body, needed) in asks(&acme) {
            let answer = stage.ask_with(&own, method, &path, body).await;
            if scope < needed {
                assert_eq!(answer.problem(), (403, "scope_insufficient"), "{scope} {method} {path}");
            } else {
                assert!((200..300).contains(&answer.status), "{scope} {method} {path}: {}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn a_key_for_all_tenants_says_which_one_and_may_look_at_all() {
    let stage = Stage::quiet().await;
    let (acme, _globex) = (with_things(&stage, "acme").await, with_things(&stage, "globex").await);
    let as_tenant = async |tenant: &str, method: &str, path: &str, body: Option<Value>| {
        stage.send(Ask::new(method, path).key(&stage.admin).tenant(tenant).maybe_json(body)).await
    };
    for (method, path, body, needed) in asks(&acme) {
        if needed == Scope::Admin {
            continue;
        }
        let answer = stage.ask(method, &path, body.clone()).await;
        assert_eq!(answer.status, 404, "without the header it is the default tenant: {method} {path}");
        let answer = as_tenant("globex", method, &path, body.clone()).await;
        if !path.contains("/once/") {
            assert_eq!(answer.status, 404, "{method} {path}");
        }
        let answer = as_tenant("*", method, &path, body).await;
        match (method, path.contains("/once/")) {
            ("GET", false) => assert_eq!(answer.status, 200, "{path}: {}", answer.text),
            _ => assert_eq!(answer.problem(), (422, "tenant_ambiguous"), "{method} {path}"),
        }
    }
    for (path, count) in [("/v1/endpoints", 2), ("/v1/deliveries", 4)] {
        let all = as_tenant("*", "GET", path, None).await.body;
        assert_eq!(all["data"].as_array().unwrap().len(), count, "{path}");
        let one = as_tenant("acme", "GET", path, None).await.body;
        assert_eq!(one["data"].as_array().unwrap().len(), count / 2, "{path}");
    }
    let endpoint = json!({"url": "https://hooks.example.com/"});
    let answer = as_tenant("*", "POST", "/v1/endpoints", Some(endpoint.clone())).await;
    assert_eq!(answer.problem(), (422, "tenant_ambiguous"));
    let answer = as_tenant("*", "POST", "/v1/deliveries/retry", Some(json!({"status": "dead"}))).await;
    assert_eq!(answer.problem(), (422, "tenant_ambiguous"));

    let own = stage.key(Some("acme"), Scope::Admin).await;
    for tenant in ["globex", "*"] {
        let answer = stage.send(Ask::new("GET", "/v1/endpoints").key(&own).tenant(tenant)).await;
        assert_eq!(answer.problem(), (403, "tenant_forbidden"), "{tenant}");
    }
    let answer = stage.send(Ask::new("GET", "/v1/endpoints").key(&own).tenant("acme")).await;
    assert_eq!(answer.status, 200);
}
