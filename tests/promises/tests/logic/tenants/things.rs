//! What a tenant has: one of everything, in every state, with a word in it that nobody else may read.

use std::collections::BTreeSet;

use postrider_conformance::receiver::{Answer as Reply, Receiver};
use postrider_conformance::wait::eventually;
use postrider_promises::canary;
use postrider_promises::process::PATIENCE;
use serde_json::{Value, json};

use super::place::{Place, Request};

/// What both tenants call the same.
pub(crate) const SUBJECT: &str = "plan/1";
pub(crate) const TOPIC: &str = "orders";
pub(crate) const IDEMPOTENCY_KEY: &str = "order-1";
pub(crate) const EVENT_TYPE: &str = "order.paid";

pub(crate) struct Things {
    pub(crate) tenant: &'static str,
    /// Stands in everything that it has, and in nothing that others know.
    pub(crate) word: &'static str,
    pub(crate) endpoints: Vec<String>,
    pub(crate) events: Vec<String>,
    pub(crate) deliveries: Vec<String>,
    pub(crate) keys: Vec<String>,
    /// `Bearer …`, of each scope and of one that was revoked.
    pub(crate) read: String,
    pub(crate) write: String,
    pub(crate) admin: String,
    pub(crate) revoked: String,
    /// Every cursor that its lists gave.
    pub(crate) cursors: BTreeSet<String>,
    /// Every place that its stream told.
    pub(crate) places: BTreeSet<String>,
}

/// A receiver that repeats the path's last part, which is the tenant's word, and fails where the path says so.
pub(crate) async fn receiver() -> Receiver {
    Receiver::start(|request, _| {
        let word = request.path.rsplit('/').next().unwrap_or_default().to_owned();
        Reply::status(if request.path.starts_with("/fail/") { 500 } else { 200 }).body(word)
    })
    .await
}

/// The id of what an answer shows.
pub(crate) fn id(value: &Value) -> String {
    value["id"].as_str().unwrap_or_else(|| panic!("it has an id: {value}")).to_owned()
}

impl Things {
    /// A tenant that has nothing but its keys.
    pub(crate) async fn none(place: &Place, tenant: &'static str, word: &'static str) -> Self {
        let mut keys = Vec::new();
        let mut tokens = Vec::new();
        for scope in ["read", "write", "admin", "admin"] {
            let new = json!({"name": format!("{scope} of {word}"), "tenant": tenant, "scope": scope});
            let made = place.ask(&Request::post("/v1/keys", new), Some(&bearer(&place.admin))).await.expect(201);
            keys.push(id(&made));
            tokens.push(bearer(made["key"].as_str().unwrap()));
        }
        let [read, write, admin, revoked] = <[String; 4]>::try_from(tokens).unwrap();
        let revoke = Request::new(reqwest::Method::DELETE, format!("/v1/keys/{}", keys[3]));
        assert_eq!(place.ask(&revoke, Some(&admin)).await.status, 204);
        let (endpoints, events, deliveries, cursors, places) = Default::default();
        Self { tenant, word, endpoints, events, deliveries, keys, read, write, admin, revoked, cursors, places }
    }

    /// A tenant with deliveries that were delivered, died, wait, and were cancelled.
    pub(crate) async fn all(place: &Place, receiver: &Receiver, tenant: &'static str, word: &'static str) -> Self {
        let mut things = Self::none(place, tenant, word).await;
        things.make(place, receiver).await;
        things.page_through(place).await;
        things.listen(place).await;
        things
    }

    async fn make(&mut self, place: &Place, receiver: &Receiver) {
        let word = self.word;
        let base = receiver.url();
        let base = base.trim_end_matches('/');
        for (path, wants) in [("ok", EVENT_TYPE), ("fail", "order.failed"), ("paused", "order.waiting")] {
            let endpoint = json!({
                "url": format!("{base}/{path}/{word}"), "event_types": [wants], "max_attempts": 1,
                "description": format!("about {word}"), "headers": {"x-word": word},
            });
            let made = place.ask(&Request::post("/v1/endpoints", endpoint), Some(&self.write)).await.expect(201);
            self.endpoints.push(id(&made));
        }
        let pause = format!("/v1/endpoints/{}/pause", self.endpoints[2]);
        place.ask(&Request::post(pause, json!({"reason": word})), Some(&self.write)).await.expect(200);

        let payload = json!({"word": word, "all": canary::PAYLOAD});
        let event = |kind: &str| json!({"type": kind, "payload": payload, "metadata": {"word": word}, "topic": TOPIC});
        let mut first = event(EVENT_TYPE);
        first["once"] = json!({"subject": SUBJECT});
        first["idempotency_key"] = json!(IDEMPOTENCY_KEY);
        let waiting = || event("order.waiting");
        for event in [first, event("order.failed"), waiting(), waiting(), waiting()] {
            let enqueued = place.ask(&Request::post("/v1/events", event), Some(&self.write)).await.expect(202);
            self.events.push(id(&enqueued));
            self.deliveries.push(id(&enqueued["deliveries"][0]));
        }
        let cancel = Request::post(format!("/v1/deliveries/{}/cancel", self.deliveries[4]), json!({"reason": word}));
        place.ask(&cancel, Some(&self.write)).await.expect(200);

        for (delivery, status) in self.deliveries.iter().zip(["delivered", "dead", "pending", "pending", "cancelled"]) {
            let settled = async || {
                let shown = place.ask(&Request::get(format!("/v1/deliveries/{delivery}")), Some(&self.read)).await;
                (shown.expect(200)["status"] == status).then_some(())
            };
            eventually(&format!("a delivery that is {status}"), PATIENCE, settled).await;
        }
    }

    async fn page_through(&mut self, place: &Place) {
        for list in ["events", "deliveries", "endpoints", "keys", "audit"] {
            let mut path = format!("/v1/{list}?limit=1");
            // Lists of this test are short; a cursor that leads in circles must not go on for ever.
            for _ in 0..100 {
                let page = place.ask(&Request::get(&path), Some(&self.admin)).await.expect(200);
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                self.cursors.insert(cursor.to_owned());
                path = format!("/v1/{list}?limit=1&cursor={cursor}");
            }
        }
        assert!(self.cursors.len() >= 10, "{:?}", self.cursors);
    }

    async fn listen(&mut self, place: &Place) {
        let request = Request::get("/v1/stream").header("last-event-id", "0");
        let told = place.follow(&request, &self.read, &self.deliveries[1]).await;
        self.places
            .extend(told.text.lines().filter_map(|line| line.strip_prefix("id:")).map(|id| id.trim().to_owned()));
        assert!(self.places.len() >= 2, "{}", told.text);
    }

    /// Everything by which it could be recognised in an answer to somebody who was not told of it.
    pub(crate) fn traces(&self) -> Vec<&str> {
        let ids = [&self.endpoints, &self.events, &self.deliveries, &self.keys].into_iter().flatten();
        ids.map(String::as_str).chain([self.word]).collect()
    }
}

pub(crate) fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}
