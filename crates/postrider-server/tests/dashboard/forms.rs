//! What a form needs besides its fields: a page of ours, the token of its session, the tenant that it showed, and the scope.

use postrider::Scope;
use serde_json::json;

use crate::browser::{Browser, Page, encoded};
use crate::stage::{Ask, Stage, text};

/// Every form, with the scope that it needs. The ids are of things that there are.
async fn forms(stage: &Stage) -> Vec<(String, Vec<(&'static str, String)>, Scope)> {
    let endpoint = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let event = stage.event("invoice.paid", json!({})).await;
    let key = stage.expect(201, "POST", "/v1/keys", Some(json!({"name": "guest", "scope": "read"}))).await;
    let endpoint = format!("/endpoints/{}", text(&endpoint["id"]));
    let id = text(&event["deliveries"][0]["id"]).to_owned();
    let url = || vec![("url", "https://hooks.example.com/changed".to_owned())];
    let none = Vec::new;
    vec![
        (format!("/deliveries/{id}/cancel"), none(), Scope::Write),
        (format!("/deliveries/{id}/retry"), none(), Scope::Write),
        ("/dead/retry".to_owned(), vec![("id", id)], Scope::Write),
        ("/dead/retry-all".to_owned(), none(), Scope::Write),
        ("/endpoints".to_owned(), url(), Scope::Write),
        (endpoint.clone(), url(), Scope::Write),
        (format!("{endpoint}/pause"), none(), Scope::Write),
        (format!("{endpoint}/resume"), none(), Scope::Write),
        (format!("{endpoint}/rotate-secret"), none(), Scope::Write),
        (format!("{endpoint}/test"), none(), Scope::Write),
        (format!("{endpoint}/remove"), none(), Scope::Write),
        ("/events".to_owned(), vec![("type", "a.b".to_owned()), ("payload", "{}".to_owned())], Scope::Write),
        ("/once/reset".to_owned(), vec![("subject", "plan/123".to_owned())], Scope::Write),
        ("/keys".to_owned(), vec![("name", "more".to_owned()), ("scope", "admin".to_owned())], Scope::Admin),
        (format!("/keys/{}/revoke", text(&key["id"])), none(), Scope::Admin),
        ("/tenant".to_owned(), vec![("chosen", "acme".to_owned())], Scope::Read),
        ("/sign-out".to_owned(), none(), Scope::Read),
    ]
}

/// Everything that a form could change, as the API tells it.
async fn everything(stage: &Stage) -> Vec<serde_json::Value> {
    let mut all = Vec::new();
    for path in ["/v1/deliveries", "/v1/endpoints", "/v1/events", "/v1/keys", "/v1/audit"] {
        all.push(stage.expect(200, "GET", path, None).await);
    }
    all
}

fn refused(page: &Page, code: &str, form: &str) {
    assert_eq!((page.status, page.code()), (403, code), "{form}");
}

#[tokio::test]
async fn a_form_without_its_token_or_from_elsewhere_does_nothing() {
    let stage = Stage::quiet().await;
    let forms = forms(&stage).await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let mut other = Browser::signed_in_with(&stage, &stage.admin).await;
    let (own, others) = (browser.get("/").await.hidden("csrf"), other.get("/").await.hidden("csrf"));
    assert_ne!(own, others, "every session has a token of its own");
    let before = everything(&stage).await;
    for (path, fields, _) in &forms {
        let mut fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        fields.push(("tenant", "default"));
        refused(&browser.submit(path, &fields).await, "csrf_token_invalid", path);
        for token in ["", "x", &others] {
            fields.push(("csrf", token));
            refused(&browser.submit(path, &fields).await, "csrf_token_invalid", path);
            fields.pop();
        }
        fields.push(("csrf", &own));
        let ask = || Ask::new("POST", path).form(encoded(&fields));
        for from_elsewhere in [
            ask(),
            ask().header("sec-fetch-site", "cross-site"),
            ask().header("sec-fetch-site", "same-site"),
            ask().header("origin", "https://evil.example"),
            ask().header("origin", "null"),
        ] {
            refused(&browser.send(from_elsewhere).await, "origin_forbidden", path);
        }
    }
    assert_eq!(everything(&stage).await, before, "nothing has changed");
    assert_eq!(browser.get("/").await.status, 200, "nobody was signed out");
}

#[tokio::test]
async fn a_form_needs_its_scope() {
    let stage = Stage::quiet().await;
    for scope in Scope::ALL {
        let key = stage.key(None, scope).await;
        for (path, fields, needed) in forms(&stage).await {
            let mut browser = Browser::signed_in_with(&stage, &key).await;
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let answer = browser.post("/once", &path, &fields).await;
            if scope < needed {
                refused(&answer, "scope_insufficient", &path);
            } else {
                assert!(
                    answer.status == 303 || answer.status == 409,
                    "{scope} {path}: {} {}",
                    answer.status,
                    answer.text
                );
            }
        }
    }
}

#[tokio::test]
async fn whoever_may_only_look_sees_no_buttons() {
    let stage = Stage::quiet().await;
    let endpoint = stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let event = stage.event("invoice.paid", json!({})).await;
    let delivery = format!("/deliveries/{}", text(&event["deliveries"][0]["id"]));
    let endpoint = format!("/endpoints/{}", text(&endpoint["id"]));
    let (mut reader, mut writer) = (
        Browser::signed_in(&stage, Some("default"), Scope::Read).await,
        Browser::signed_in(&stage, Some("default"), Scope::Write).await,
    );
    for path in [delivery.as_str(), &endpoint, "/dead", "/endpoints/new", "/events/new", "/once?subject=a"] {
        let forms = |text: &str| text.matches("method=\"post\"").count();
        assert_eq!(forms(&reader.get(path).await.text), 1, "{path}: only to sign out");
    }
    for path in [delivery.as_str(), &endpoint, "/endpoints/new", "/events/new"] {
        assert!(writer.get(path).await.text.matches("method=\"post\"").count() > 1, "{path}");
    }
    for path in ["/keys", "/audit"] {
        for browser in [&mut reader, &mut writer] {
            let page = browser.get(path).await;
            refused(&page, "scope_insufficient", path);
            assert!(!page.text.contains(&format!("href=\"{path}\"")), "there is no link to where one may not go");
        }
    }
}

#[tokio::test]
async fn a_form_of_another_tenant_than_the_one_that_is_looked_at_is_refused() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let form = browser.get("/endpoints/new").await;
    let (csrf, tenant) = (form.hidden("csrf"), form.hidden("tenant"));
    // In another tab.
    assert_eq!(browser.post("/once", "/tenant", &[("chosen", "acme")]).await.location(), "/");
    let fields = [("csrf", csrf.as_str()), ("tenant", &tenant), ("url", "https://hooks.example.com/")];
    let answer = browser.submit("/endpoints", &fields).await;
    assert_eq!((answer.status, answer.code()), (409, "tenant_changed"));
    let all = stage.send(Ask::new("GET", "/v1/endpoints").key(&stage.admin).tenant("*")).await;
    assert_eq!(all.body["data"], json!([]));
}

#[tokio::test]
async fn what_is_no_form_is_not_read() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let json = Ask::new("POST", "/dead/retry-all").header("sec-fetch-site", "same-origin").json(&json!({}));
    let answer = browser.send(json).await;
    assert_eq!((answer.status, answer.code()), (415, "content_type_unsupported"));
    let large = "x".repeat(2 * 1024 * 1024);
    let answer = browser.submit("/events", &[("payload", &large)]).await;
    assert_eq!((answer.status, answer.code()), (413, "body_too_large"));
}
