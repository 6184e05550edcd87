//! What people come for: add an endpoint, see a delivery fail and die, retry it; rotate, pause, send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use postrider::Scope;
use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually};
use serde_json::json;

use crate::browser::Browser;
use crate::stage::{Stage, text, verified};

/// A receiver that answers what it is told to.
async fn receiver() -> (Receiver, Arc<AtomicU16>) {
    let status = Arc::new(AtomicU16::new(503));
    let told = Arc::clone(&status);
    (Receiver::start(move |_, _| Answer::status(told.load(Ordering::Relaxed))).await, status)
}

#[tokio::test]
async fn an_endpoint_is_added_its_delivery_dies_and_is_retried() {
    let stage = Stage::dispatching().await;
    let (receiver, status) = receiver().await;
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Write).await;
    let wrong =
        browser.post("/endpoints/new", "/endpoints", &[("url", "ftp://nowhere"), ("description", "kept")]).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("aria-invalid=\"true\"") && wrong.text.contains("value=\"kept\""), "{}", wrong.text);

    let url = receiver.url();
    let made = browser.post("/endpoints/new", "/endpoints", &[("url", &url), ("event_types", "invoice.*\r\n")]).await;
    let endpoint = made.location().to_owned();
    let shown = browser.get(&endpoint).await.text;
    let secret = shown.split("data-copy=\"whsec_").nth(1).map(|rest| rest.split('"').next().unwrap()).unwrap();
    let secret = json!(format!("whsec_{secret}"));
    assert!(!browser.get(&endpoint).await.text.contains("whsec_"), "it is shown once");

    let sent = browser.post("/events/new", "/events", &[("type", "invoice.paid"), ("payload", "{\"n\": 1.50}")]).await;
    let event = browser.get(sent.location()).await.text;
    assert!(
        event.contains("on its way to 1 endpoint") && event.contains("<span class=\"word\">1.50</span>"),
        "{event}"
    );
    let delivery = event.split("href=\"/deliveries/dlv_").nth(1).unwrap().split('"').next().unwrap();
    let delivery = format!("dlv_{delivery}");
    stage.delivery_in(&delivery, "dead").await;
    let page = browser.get(&format!("/deliveries/{delivery}")).await.text;
    for wanted in ["It is dead because all 3 attempts failed", "Attempt 3", "Attempt 1", "503", "Retry now"] {
        assert!(page.contains(wanted), "{wanted} is missing from {page}");
    }
    let dead = browser.get("/dead").await.text;
    assert!(dead.contains(&format!("<tr id=\"{delivery}\"")));

    status.store(200, Ordering::Relaxed);
    let none = browser.post("/dead", "/dead/retry", &[]).await;
    assert!(browser.get(none.location()).await.text.contains("None was chosen"));
    let retried = browser.post("/dead", "/dead/retry", &[("id", &delivery)]).await;
    assert!(browser.get(retried.location()).await.text.contains("1 delivery is due now."));
    stage.delivery_in(&delivery, "delivered").await;
    let page = browser.get(&format!("/deliveries/{delivery}")).await.text;
    assert!(page.contains("Attempt 4") && !page.contains("Retry now"), "{page}");
    let arrived = receiver.wait_for(4, PATIENCE).await;
    assert!(verified(&secret, &arrived[3]), "the secret that was shown is the one that signs");
    let again = browser.post("/once", &format!("/deliveries/{delivery}/retry"), &[]).await;
    assert_eq!((again.status, again.code()), (409, "delivery_already_delivered"));
}

#[tokio::test]
async fn all_dead_letters_are_retried_step_by_step() {
    const COUNT: usize = 600;
    let stage = Stage::dispatching().await;
    let (receiver, status) = receiver().await;
    stage.endpoint(json!({"url": receiver.url(), "event_types": ["a.*"], "max_attempts": 1})).await;
    let events: Vec<_> =
        (0..COUNT).map(|n| json!({"type": if n == 0 { "a.other" } else { "a.b" }, "payload": {}})).collect();
    stage.expect(202, "POST", "/v1/events/batch", Some(json!(events))).await;
    let overview = async || stage.expect(200, "GET", "/v1/overview", None).await;
    eventually("all are dead", PATIENCE, async || (overview().await["dead"] == COUNT).then_some(())).await;
    status.store(200, Ordering::Relaxed);
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Write).await;
    let first = browser.post("/dead", "/dead/retry-all", &[("event_type", "a.b")]).await;
    assert_eq!(first.status, 200);
    let (total, done) = (first.hidden("total"), first.hidden("done"));
    assert_eq!((total.as_str(), done.as_str()), ("599", "500"));
    assert!(first.text.contains("500 of 599 are due again") && first.text.contains("<progress"), "{}", first.text);
    let (csrf, tenant, event_type) = (first.hidden("csrf"), first.hidden("tenant"), first.hidden("event_type"));
    let fields =
        [("csrf", csrf.as_str()), ("tenant", &tenant), ("event_type", &event_type), ("total", &total), ("done", &done)];
    let last = browser.submit("/dead/retry-all", &fields).await;
    assert!(browser.get(last.location()).await.text.contains("599 deliveries are due now."));
    let left = async || (overview().await["delivered"] == COUNT - 1).then_some(());
    eventually("what was retried is delivered", PATIENCE, left).await;
    assert_eq!(overview().await["dead"], 1, "the other type was not meant");
}

#[tokio::test]
async fn an_endpoint_is_edited_paused_resumed_rotated_tested_and_removed() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    let settings = json!({"url": receiver.url(), "event_types": ["a.*", "b"], "retry_schedule": ["1s", "2m"], "max_attempts": 4,
        "rate_limit": "50/s", "timeout": "3s", "headers": {"x-team": "billing", "authorization": "Bearer canary"},
        "signature": {"scheme": "hmac-sha256-hex", "header_prefix": "X-Acme-", "signed": "body"}});
    let made = stage.endpoint(settings).await;
    let path = format!("/endpoints/{}", text(&made["id"]));
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Write).await;
    let seen = async || stage.expect(200, "GET", &format!("/v1{path}"), None).await;
    let before = seen().await;

    // The form as it is shown, sent back, changes nothing.
    let form = browser.get(&format!("{path}/edit")).await;
    assert!(!form.text.contains("canary"), "a credential is not shown");
    let fields = shown_fields(&form.text);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(browser.submit(&path, &fields).await.location(), path);
    let mut after = seen().await;
    after["revision"] = before["revision"].clone();
    assert_eq!(after, before);

    browser.post(&path, &format!("{path}/pause"), &[("reason", "it moves house")]).await;
    assert_eq!((&seen().await["status"], &seen().await["status_reason"]), (&json!("paused"), &json!("it moves house")));
    assert!(browser.get(&path).await.text.contains("it moves house"));
    browser.post(&path, &format!("{path}/resume"), &[]).await;
    assert_eq!(seen().await["status"], "active");
    let rotated = browser.post(&path, &format!("{path}/rotate-secret"), &[("overlap", "1h")]).await;
    assert!(browser.get(rotated.location()).await.text.contains("data-copy=\"whsec_"));
    assert!(seen().await["secrets_retiring_until"].is_string());
    let tested = browser.post(&path, &format!("{path}/test"), &[]).await;
    assert!(tested.location().starts_with("/deliveries/dlv_"));
    assert_eq!(receiver.wait_for(1, PATIENCE).await[0].header("authorization"), "Bearer canary", "it was kept");
    assert_eq!(browser.post(&path, &format!("{path}/remove"), &[]).await.location(), "/endpoints");
    assert_eq!(browser.get(&path).await.status, 404);
}

#[tokio::test]
async fn claims_are_looked_up_and_begun_anew_and_keys_are_made_and_revoked() {
    let stage = Stage::quiet().await;
    let mut browser = Browser::signed_in_with(&stage, &stage.admin).await;
    let fields = [("type", "plan.due"), ("payload", "{}"), ("subject", "plan/1 & 2")];
    let sent = browser.post("/events/new", "/events", &fields).await.location().to_owned();
    let second = browser.post("/events/new", "/events", &fields).await;
    assert_eq!(second.location(), sent, "the one that has claimed it");
    assert!(browser.get(&sent).await.text.contains("the subject is claimed already"));
    let page = browser.get("/once?subject=plan%2F1+%26+2").await.text;
    assert!(page.contains(&format!("href=\"{sent}\"")), "{page}");
    let reset = browser.post("/once", "/once/reset", &[("subject", "plan/1 & 2")]).await;
    let page = browser.get(reset.location()).await.text;
    assert!(page.contains("Generation 2 has begun.") && page.contains("nobody yet in this generation"), "{page}");

    let made = browser.post("/keys", "/keys", &[("name", "guest"), ("scope", "read"), ("for", "tenant")]).await;
    let page = browser.get(made.location()).await.text;
    let key = page.split("data-copy=\"prk_").nth(1).unwrap().split('"').next().unwrap();
    let mut guest = Browser::signed_in_with(&stage, &format!("prk_{key}")).await;
    assert_eq!(guest.get("/").await.status, 200);
    let revoke = page.split("action=\"/keys/key_").nth(1).unwrap().split('"').next().unwrap();
    browser.post("/keys", &format!("/keys/key_{revoke}"), &[]).await;
    assert_eq!(guest.get("/").await.location(), "/sign-in");
    let audit = browser.get("/audit").await.text;
    for wanted in ["once.reset", "key.create", "key.revoke"] {
        assert!(audit.contains(wanted), "{wanted} is missing from {audit}");
    }
}

/// What a browser would send of the form of an endpoint.
fn shown_fields(page: &str) -> Vec<(String, String)> {
    let form = page.split("<form class=\"stack\"").nth(1).unwrap().split("</form>").next().unwrap();
    let decoded =
        |text: &str| text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let attribute = |tag: &str, name: &str| {
        tag.split_once(&format!(" {name}=\"")).map(|(_, rest)| decoded(rest.split('"').next().unwrap()))
    };
    let mut fields = Vec::new();
    for tag in form.split('<').skip(1) {
        let name = attribute(tag, "name").unwrap_or_default();
        if tag.starts_with("input") {
            fields.push((name, attribute(tag, "value").unwrap_or_default()));
        } else if tag.starts_with("textarea") {
            fields.push((name, decoded(tag.split_once('>').unwrap().1)));
        } else if tag.starts_with("option") && tag.contains(" selected") {
            fields.push(("signature".to_owned(), attribute(tag, "value").unwrap()));
        }
    }
    fields
}
