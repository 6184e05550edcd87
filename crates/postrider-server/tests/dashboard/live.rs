//! The stream that tells pages when to look again.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use postrider::Scope;
use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::{PATIENCE, eventually, within};
use serde_json::json;

use crate::browser::Browser;
use crate::stage::{Ask, Stage, text};

/// A stream that is being read.
struct Reading {
    body: Incoming,
    text: String,
}

impl Reading {
    async fn open(stage: &Stage, browser: &Browser<'_>) -> Self {
        let ask = browser.with_cookies(Ask::new("GET", "/live"));
        let (head, body) = within("the stream opens", PATIENCE, stage.open_answer(ask)).await;
        assert_eq!(head.headers["content-type"], "text/event-stream", "{}", head.status);
        Self { body, text: String::new() }
    }

    /// Reads until there are so many events of this name; false when the stream has ended before.
    async fn has(&mut self, event: &str, count: usize) -> bool {
        // Browsers pass over events without data.
        let line = format!("event: {event}\ndata: ");
        loop {
            if self.text.matches(&line).count() >= count {
                return true;
            }
            match within("the stream goes on or ends", PATIENCE, self.body.frame()).await {
                Some(Ok(frame)) => self.text.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap())),
                _ => return false,
            }
        }
    }
}

#[tokio::test]
async fn a_page_is_told_when_something_happens_and_shows_it() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    stage.endpoint(json!({"url": receiver.url()})).await;
    let mut browser = Browser::signed_in(&stage, Some("default"), Scope::Read).await;
    let mut reading = Reading::open(&stage, &browser).await;
    assert!(reading.has("open", 1).await);
    let event = stage.event("a.b", json!({})).await;
    stage.delivery_in(text(&event["deliveries"][0]["id"]), "delivered").await;
    assert!(reading.has("beat", 1).await, "{}", reading.text);
    assert!(!reading.text.contains("dlv_"), "it carries nothing");
    // The figures are those of the service, and the plots have the delivery of the last minute.
    eventually("the overview shows it", PATIENCE, async || {
        let page = browser.get("/").await.text;
        let plot = "Delivered per minute over the last 15 minutes: now 1, highest 1";
        (page.contains(plot) && page.contains("<b>1</b><span>delivered</span>")).then_some(())
    })
    .await;
    let mut stranger = Browser::signed_in(&stage, Some("globex"), Scope::Read).await;
    let page = stranger.get("/").await.text;
    assert!(page.contains("Delivered per minute over the last 15 minutes: now 0, highest 0"), "{page}");
}

#[tokio::test]
async fn a_stream_ends_with_the_key_that_opened_it() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    stage.endpoint(json!({"url": receiver.url()})).await;
    let key = stage.expect(201, "POST", "/v1/keys", Some(json!({"name": "guest", "scope": "read"}))).await;
    let browser = Browser::signed_in_with(&stage, text(&key["key"])).await;
    let mut reading = Reading::open(&stage, &browser).await;
    assert!(reading.has("open", 1).await);
    stage.expect(204, "DELETE", &format!("/v1/keys/{}", text(&key["id"])), None).await;
    stage.event("a.b", json!({})).await;
    assert!(!reading.has("beat", 1_000).await, "it does not go on for ever");
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let mut stage = Stage::quiet().await;
    let key = stage.admin.clone();
    let browser = Browser::signed_in_with(&stage, &key).await;
    let mut reading = Reading::open(&stage, &browser).await;
    assert!(reading.has("open", 1).await);
    stage.stop().await;
    assert!(!reading.has("beat", 1_000).await);
}
