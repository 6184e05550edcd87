//! A tenant's key sees its tenant's things and no others, on every page and with every form.

use postrider::Scope;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::stage::{Ask, Stage, text};

/// What one tenant has.
struct Things {
    endpoint: String,
    event: String,
    delivery: String,
    key: String,
}

async fn with_things(stage: &Stage, tenant: &str) -> Things {
    let ask = async |method: &str, path: &str, body: Value| {
        let answer = stage.send(Ask::new(method, path).key(&stage.admin).tenant(tenant).json(&body)).await;
        assert!(answer.status < 300, "{}", answer.text);
        answer.body
    };
    let url = format!("https://{tenant}.example/");
    let endpoint = ask("POST", "/v1/endpoints", json!({"url": url, "description": tenant})).await;
    let event = json!({"type": format!("{tenant}.due"), "payload": {"of": tenant}, "once": {"subject": "plan/123"}});
    let event = ask("POST", "/v1/events", event).await;
    let key = ask("POST", "/v1/keys", json!({"name": format!("key of {tenant}"), "scope": "read"})).await;
    let own = |value: &Value| text(value).to_owned();
    Things {
        endpoint: own(&endpoint["id"]),
        event: own(&event["id"]),
        delivery: own(&event["deliveries"][0]["id"]),
        key: own(&key["id"]),
    }
}

#[tokio::test]
async fn p21_nothing_of_another_tenant_is_on_any_page() {
    let stage = Stage::quiet().await;
    let acme = with_things(&stage, "acme").await;
    let globex = with_things(&stage, "globex").await;
    for scope in Scope::ALL {
        let mut browser = Browser::signed_in(&stage, Some("globex"), scope).await;
        for path in ["/", "/deliveries", "/dead", "/endpoints", "/events", "/once?subject=plan/123", "/audit", "/keys"]
        {
            let page = browser.get(path).await;
            assert!(!page.text.contains("acme"), "{scope} {path}: {}", page.text);
            assert!(page.status == 403 || path == "/dead" || page.text.contains("globex"), "{scope} {path}");
        }
        for path in [
            format!("/deliveries/{}", acme.delivery),
            format!("/endpoints/{}", acme.endpoint),
            format!("/endpoints/{}/edit", acme.endpoint),
            format!("/events/{}", acme.event),
            format!("/events/{}/payload", acme.event),
        ] {
            let page = browser.get(&path).await;
            assert_eq!(page.status, 404, "{scope} {path}: {}", page.text);
        }
        for path in [
            format!("/deliveries?endpoint_id={}", acme.endpoint),
            format!("/deliveries?event_id={}", acme.event),
            format!("/dead?endpoint_id={}", acme.endpoint),
        ] {
            let page = browser.get(&path).await;
            assert!(page.status == 200 && !page.text.contains("<tr id="), "{scope} {path}");
        }
        assert_eq!(browser.get(&format!("/deliveries/{}", globex.delivery)).await.status, 200, "its own is there");
    }
}

#[tokio::test]
async fn p21_no_form_touches_another_tenants_things() {
    let stage = Stage::quiet().await;
    let acme = with_things(&stage, "acme").await;
    let mut browser = Browser::signed_in(&stage, Some("globex"), Scope::Admin).await;
    let endpoint = format!("/endpoints/{}", acme.endpoint);
    for path in [
        format!("/deliveries/{}/retry", acme.delivery),
        format!("/deliveries/{}/cancel", acme.delivery),
        endpoint.clone(),
        format!("{endpoint}/pause"),
        format!("{endpoint}/resume"),
        format!("{endpoint}/rotate-secret"),
        format!("{endpoint}/test"),
        format!("{endpoint}/remove"),
        format!("/keys/{}/revoke", acme.key),
    ] {
        let answer = browser.post("/once", &path, &[("url", "https://globex.example/")]).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
    let some = browser.post("/once", "/dead/retry", &[("id", &acme.delivery)]).await;
    assert_eq!(some.location(), "/dead");
    assert_eq!(browser.post("/once", "/once/reset", &[("subject", "plan/123")]).await.status, 303);
    let answer = browser.post("/once", "/tenant", &[("chosen", "acme")]).await;
    assert_eq!((answer.status, answer.code()), (403, "tenant_forbidden"));
    // Whatever a browser says about tenants, the key decides.
    browser.cookies.insert("postrider_tenant".to_owned(), "acme".to_owned());
    assert_eq!(browser.get(&endpoint).await.status, 404);
    let key = browser.post("/once", "/keys", &[("name", "more"), ("scope", "read"), ("for", "all")]).await;
    assert_eq!((key.status, key.code()), (403, "tenant_forbidden"));

    let seen = async |path: &str| stage.send(Ask::new("GET", path).key(&stage.admin).tenant("acme")).await.body;
    let kept = seen(&format!("/v1{endpoint}")).await;
    assert_eq!((&kept["status"], &kept["url"]), (&json!("active"), &json!("https://acme.example/")));
    assert_eq!(kept["secrets_retiring_until"], Value::Null);
    assert_eq!(seen(&format!("/v1/deliveries/{}", acme.delivery)).await["status"], "pending");
    assert_eq!(seen("/v1/once/plan%2F123").await["generation"], 1);
    assert_eq!(seen("/v1/deliveries").await["data"].as_array().unwrap().len(), 1, "no test event");
    assert_eq!(seen("/v1/keys").await["data"][0]["revoked_at"], Value::Null);
}

#[tokio::test]
async fn a_key_for_all_tenants_looks_at_one_at_a_time_or_at_all() {
    let stage = Stage::quiet().await;
    with_things(&stage, "acme").await;
    with_things(&stage, "globex").await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let page = browser.get("/deliveries").await.text;
    assert!(!page.contains("acme") && !page.contains("globex"), "it begins with the default tenant");
    browser.post("/once", "/tenant", &[("chosen", "acme")]).await;
    let page = browser.get("/deliveries").await.text;
    assert!(page.contains("acme.due") && !page.contains("globex"));
    browser.post("/once", "/tenant", &[("chosen", "*")]).await;
    let page = browser.get("/deliveries").await.text;
    assert!(page.contains("acme.due") && page.contains("globex.due"));
    // All at once can be looked at, and not be changed.
    let answer = browser.post("/once", "/endpoints", &[("url", "https://a.example/")]).await;
    assert_eq!(answer.status, 422);
    assert!(answer.text.contains("Choose one to change something"), "{}", answer.text);
    let wrong = browser.post("/once", "/tenant", &[("chosen", "\u{7}")]).await;
    assert_eq!((wrong.status, wrong.code()), (422, "tenant_invalid"));
}
