//! The gateway as its callers meet it: over HTTP, with the router running.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::net::SocketAddr;

use gateway::{Gateway, ServeError, serve};
use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually, within};
use postrider_sqlite::SqliteStore;
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use support::{SECRET, START, settings};

/// A gateway that is served, on a clock that stands still.
struct Served {
    address: SocketAddr,
    store: SqliteStore,
    client: reqwest::Client,
    token: Option<&'static str>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
    folder: TempDir,
}

impl Served {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), None).await
    }

    async fn start_in(folder: TempDir, token: Option<&'static str>) -> Self {
        // Of two tests that install it at once, one does.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let gateway = Gateway::open(settings(folder.path().join("gateway.db"))).await.unwrap();
        let store = gateway.store().clone();
        store.freeze_clock(Some(START.parse().unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        let task = tokio::spawn(serve(gateway, listener, token.map(str::to_owned), shutdown));
        Self { address, store, client: reqwest::Client::new(), token, stop, task, folder }
    }

    async fn stop(self) -> TempDir {
        self.stop.send(()).unwrap();
        within("the gateway to stop", PATIENCE, self.task).await.unwrap().unwrap();
        self.folder
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("http://{}{path}", self.address)).timeout(PATIENCE);
        match self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let request = self.request(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        answer(request.send().await.unwrap()).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(Method::GET, path, Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, body) = self.send(Method::POST, path, body).await;
        assert!((200..300).contains(&status), "{status}: {body}");
        body
    }

    async fn webhook(&self, receiver: &Receiver) -> Value {
        self.post("/webhooks", json!({"target_url": receiver.url(), "secret": SECRET})).await
    }

    /// The newest delivery, once it is in this status.
    async fn becomes(&self, status: &str) -> Value {
        eventually(&format!("a delivery that is {status}"), PATIENCE, async || {
            let newest = self.get("/deliveries?limit=1").await["data"][0].clone();
            (newest["status"] == status).then_some(newest)
        })
        .await
    }

    /// Lets the newest delivery fail until it is dead.
    async fn dies(&self) -> Value {
        eventually("the delivery to be dead", PATIENCE, async || {
            let newest = self.get("/deliveries?limit=1").await["data"][0].clone();
            if let Some(due) = newest["next_retry_at"].as_str() {
                self.store.freeze_clock(Some(due.parse().unwrap()));
            }
            (newest["status"] == "dead").then_some(newest)
        })
        .await
    }
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let is_problem = response.headers()["content-type"] == "application/problem+json";
    assert_eq!(is_problem, status >= 400, "errors are problems, and nothing else is");
    (status, response.json().await.unwrap())
}

#[tokio::test]
async fn what_was_told_of_a_session_is_listed_by_the_session() {
    let (served, receiver) = (Served::start().await, Receiver::answering(200).await);
    let webhooks = [served.webhook(&receiver).await, served.webhook(&receiver).await];
    let mut paths = Vec::new();
    for name in ["night shift", "day shift"] {
        let session = served.post("/sessions", json!({"name": name})).await;
        let id = session["id"].as_str().unwrap().to_owned();
        let changed = served.send(Method::PATCH, &format!("/sessions/{id}"), json!({"status": "idle"})).await;
        assert_eq!(changed.0, 200);
        paths.push((format!("/deliveries?session_id={id}"), id));
    }
    for (path, id) in &paths {
        let rows = eventually("all to be delivered", PATIENCE, async || {
            let rows = served.get(path).await["data"].as_array().unwrap().clone();
            rows.iter().all(|row| row["status"] == "delivered").then_some(rows)
        })
        .await;
        assert!(rows.iter().all(|row| row["session_id"] == **id), "{rows:?}");
        let types: Vec<_> = rows.iter().map(|row| row["event_type"].as_str().unwrap()).collect();
        assert_eq!(types, ["session.idle", "session.idle", "session.active", "session.active"], "newest first");

        // Page by page, and beside the other filters.
        let mut paged = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = served.get(&format!("{path}&limit=3{cursor}")).await;
            paged.extend(page["data"].as_array().unwrap().clone());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, rows);
        let to_first = served.get(&format!("{path}&webhook_id={}", webhooks[0]["id"].as_str().unwrap())).await;
        assert_eq!(to_first["data"].as_array().unwrap().len(), 2);
        assert_eq!(served.get(&format!("{path}&status=dead")).await["data"], json!([]));
    }
    assert_eq!(served.get(&format!("/deliveries?session_id={}", uuid::Uuid::nil())).await["data"], json!([]));
    let (code, problem) = served.send(Method::GET, "/deliveries?session_id=night", Value::Null).await;
    assert_eq!((code, &problem["code"]), (422, &json!("session_id_invalid")));
    served.stop().await;
}

#[tokio::test]
async fn a_change_of_a_session_reaches_the_webhooks_that_want_it() {
    let (served, receiver) = (Served::start().await, Receiver::answering(200).await);
    let picky = json!({"target_url": receiver.url(), "secret": SECRET, "event_types": ["session.ended"]});
    let webhook = served.post("/webhooks", picky).await;
    assert!(!webhook.to_string().contains(SECRET), "a secret is not shown again");
    let session = served.post("/sessions", json!({"name": "night shift"})).await;
    let path = format!("/sessions/{}", session["id"].as_str().unwrap());
    for status in ["idle", "idle", "active", "ended", "ended"] {
        let (code, session) = served.send(Method::PATCH, &path, json!({"status": status})).await;
        assert_eq!((code, &session["status"]), (200, &json!(status)));
    }
    let delivered = served.becomes("delivered").await;
    assert_eq!((&delivered["webhook_id"], &delivered["session_id"]), (&webhook["id"], &session["id"]));
    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!((&body["type"], &body["previous_status"]), (&json!("session.ended"), &json!("active")));
    assert_eq!(served.get("/sessions").await["data"][0], served.get(&path).await);

    let (code, problem) = served.send(Method::PATCH, &path, json!({"status": "active"})).await;
    assert_eq!((code, &problem["code"]), (409, &json!("session_ended")));
    served.stop().await;
}

#[tokio::test]
async fn doc_003_f1_result_a_dead_letter_is_listed_and_reset_by_an_operator() {
    let (served, receiver) = (Served::start().await, Receiver::answering(500).await);
    served.webhook(&receiver).await;
    served.post("/sessions", json!({"name": "night shift"})).await;
    let dead = served.dies().await;
    assert_eq!((&dead["attempt_count"], &dead["next_retry_at"]), (&json!(5), &Value::Null));
    assert_eq!(served.get("/deliveries?status=dead").await["data"], json!([dead]));
    assert_eq!(served.get("/deliveries?status=delivered").await["data"], json!([]));

    let reset = format!("/deliveries/{}/reset", dead["id"].as_str().unwrap());
    let response = served.request(Method::POST, &reset).header("X-Operator", "ada").send().await.unwrap();
    let (status, row) = answer(response).await;
    assert_eq!(status, 200, "{row}");
    // The router may have made its first attempt of the new round by now.
    eventually("the sixth attempt", PATIENCE, async || (receiver.request_count() == 6).then_some(())).await;
    let failed = served.becomes("failed").await;
    assert_eq!(failed["attempt_count"], 1);
    let (status, problem) = served.send(Method::POST, &reset, Value::Null).await;
    assert_eq!((status, &problem["code"]), (409, &json!("delivery_not_dead")));
    served.stop().await;
}

#[tokio::test]
async fn a_webhook_whose_receiver_is_gone_waits_until_it_is_resumed_and_can_be_removed() {
    let served = Served::start().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 410 } else { 200 })).await;
    let webhook = served.webhook(&receiver).await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    assert_eq!(served.get(&path).await, webhook);
    assert_eq!(served.get("/webhooks").await["data"], json!([webhook]));
    served.post("/sessions", json!({"name": "night shift"})).await;
    let failed = served.becomes("failed").await;
    assert_eq!(served.get(&path).await["status"], "disabled");
    assert_eq!(served.post(&format!("{path}/resume"), Value::Null).await["status"], "active");
    served.store.freeze_clock(Some(failed["next_retry_at"].as_str().unwrap().parse().unwrap()));
    served.becomes("delivered").await;

    let removed = served.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(removed.status(), 204);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(served.send(method, &path, Value::Null).await.0, 404);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_dead_letter_of_a_removed_webhook_cannot_be_reset() {
    let (served, receiver) = (Served::start().await, Receiver::answering(500).await);
    let webhook = served.webhook(&receiver).await;
    served.post("/sessions", json!({"name": "night shift"})).await;
    let dead = served.dies().await;
    let path = format!("/webhooks/{}", webhook["id"].as_str().unwrap());
    served.request(Method::DELETE, &path).send().await.unwrap();
    let reset = format!("/deliveries/{}/reset", dead["id"].as_str().unwrap());
    let (status, problem) = served.send(Method::POST, &reset, Value::Null).await;
    assert_eq!((status, &problem["code"]), (409, &json!("webhook_removed")));
    served.stop().await;
}

#[tokio::test]
async fn bad_input_is_refused_with_a_code_and_writes_nothing() {
    let served = Served::start().await;
    let url = "https://hooks.example.com/";
    let nobody = "00000000-0000-0000-0000-000000000000";
    for (method, path, body, expected) in [
        (
            "POST",
            "/webhooks",
            json!({"target_url": "http://10.0.0.1/", "secret": SECRET}),
            (422, "destination_private_address"),
        ),
        (
            "POST",
            "/webhooks",
            json!({"target_url": "ftp://a.example.com/", "secret": SECRET}),
            (422, "destination_scheme"),
        ),
        ("POST", "/webhooks", json!({"target_url": url, "secret": "short"}), (422, "secret_invalid")),
        (
            "POST",
            "/webhooks",
            json!({"target_url": url, "secret": SECRET, "event_types": []}),
            (422, "event_types_empty"),
        ),
        (
            "POST",
            "/webhooks",
            json!({"target_url": url, "secret": SECRET, "event_types": ["a b"]}),
            (422, "event_type_pattern_invalid"),
        ),
        ("POST", "/webhooks", json!({"target_url": url}), (422, "body_invalid")),
        ("POST", "/webhooks", json!({"target_url": url, "secret": SECRET, "colour": "red"}), (422, "body_invalid")),
        ("POST", "/webhooks", json!([url, SECRET, ["*"]]), (422, "body_invalid")),
        ("POST", "/sessions", json!({"name": ""}), (422, "name_invalid")),
        ("POST", "/sessions", json!(["night shift"]), (422, "body_invalid")),
        ("PATCH", &format!("/sessions/{nobody}"), json!(["idle"]), (422, "body_invalid")),
        ("POST", "/sessions", Value::Null, (415, "content_type_unsupported")),
        ("PATCH", &format!("/sessions/{nobody}"), json!({"status": "idle"}), (404, "not_found")),
        ("PATCH", &format!("/sessions/{nobody}"), json!({"status": "asleep"}), (422, "body_invalid")),
        ("GET", "/sessions/nobody", Value::Null, (404, "not_found")),
        ("GET", &format!("/deliveries/{nobody}"), Value::Null, (404, "not_found")),
        ("POST", &format!("/deliveries/{nobody}/reset"), Value::Null, (404, "not_found")),
        ("POST", &format!("/webhooks/{nobody}/resume"), Value::Null, (404, "not_found")),
        ("GET", "/deliveries?status=lost", Value::Null, (422, "status_invalid")),
        ("GET", "/deliveries?webhook_id=lost", Value::Null, (422, "webhook_id_invalid")),
        ("GET", "/deliveries?limit=0", Value::Null, (422, "limit_invalid")),
        ("GET", "/deliveries?cursor=x", Value::Null, (422, "cursor_invalid")),
        ("GET", "/deliveries?colour=red", Value::Null, (400, "query_invalid")),
        ("GET", "/nowhere", Value::Null, (404, "route_unknown")),
        ("DELETE", "/sessions", Value::Null, (405, "method_not_allowed")),
    ] {
        let (status, problem) = served.send(method.parse().unwrap(), path, body).await;
        assert_eq!((status, problem["code"].as_str().unwrap()), expected, "{method} {path}: {problem}");
    }
    let not_json = served.request(Method::POST, "/sessions").header("content-type", "application/json").body("{");
    assert_eq!(answer(not_json.send().await.unwrap()).await.1["code"], "json_invalid");
    assert_eq!(served.get("/webhooks").await["data"], json!([]));
    assert_eq!(served.get("/sessions").await["data"], json!([]));
    served.stop().await;
}

#[tokio::test]
async fn a_listing_goes_on_where_its_cursor_says() {
    let served = Served::start().await;
    for name in ["first", "second", "third"] {
        served.post("/sessions", json!({"name": name})).await;
    }
    let page = served.get("/sessions?limit=2").await;
    assert_eq!((&page["data"][0]["name"], &page["data"][1]["name"]), (&json!("third"), &json!("second")));
    let rest = served.get(&format!("/sessions?limit=2&cursor={}", page["next_cursor"].as_str().unwrap())).await;
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["data"][0]["name"]), (1, &json!("first")));
    assert_eq!(rest["next_cursor"], Value::Null);
    served.stop().await;
}

#[tokio::test]
async fn with_a_token_nobody_gets_in_without_it() {
    let served = Served::start_in(tempfile::tempdir().unwrap(), Some("open sesame")).await;
    served.get("/deliveries").await;
    for shown in [None, Some("open sesam"), Some("open sesame2"), Some("")] {
        for path in ["/deliveries", "/topics/gateway:webhooks"] {
            let request = served.client.get(format!("http://{}{path}", served.address));
            let request = if let Some(shown) = shown { request.bearer_auth(shown) } else { request };
            let (status, problem) = answer(request.send().await.unwrap()).await;
            assert_eq!((status, &problem["code"]), (401, &json!("token_invalid")), "{shown:?} {path}");
        }
    }
    let health = served.client.get(format!("http://{}/healthz", served.address)).send().await.unwrap();
    assert_eq!(health.status(), 200, "whoever watches it needs none");
    served.stop().await;
}

/// The server-sent events of one connection.
struct Events {
    response: Response,
    text: String,
}

impl Events {
    async fn follow(served: &Served, last_event_id: Option<&str>) -> Self {
        let request = served.request(Method::GET, "/topics/gateway:webhooks");
        let request = if let Some(id) = last_event_id { request.header("Last-Event-ID", id) } else { request };
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event's id, name and data; none when the stream has ended.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(&format!("{name}: ")))
                        .unwrap_or_default()
                        .to_owned()
                };
                let (id, name, data) = (field("id"), field("event"), field("data"));
                if !name.is_empty() {
                    return Some((id, name, serde_json::from_str(&data).unwrap()));
                }
            }
            let chunk = within("an event or the stream's end", PATIENCE, self.response.chunk()).await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

#[tokio::test]
async fn doc_003_a1_and_f1_the_topic_is_followed_over_http_also_across_a_restart() {
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 200 } else { 500 })).await;
    let served = Served::start().await;
    served.webhook(&receiver).await;
    let mut events = Events::follow(&served, None).await;
    served.post("/sessions", json!({"name": "night shift"})).await;
    let delivered = served.becomes("delivered").await;
    let told = |row: &Value| {
        let (webhook, session) = (&row["webhook_id"], &row["session_id"]);
        json!({"webhook_delivery_id": row["id"], "webhook_id": webhook, "session_id": session})
    };
    let (place, name, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), data), ("WebhookDeliveredEvent", told(&delivered)));

    served.post("/sessions", json!({"name": "day shift"})).await;
    let dead = served.dies().await;
    let (_, name, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), data), ("WebhookDLQEvent", told(&dead)), "failures that are retried are not told");

    let folder = served.stop().await;
    assert!(events.next().await.is_none(), "a stop ends the stream, and does not wait for it");
    let served = Served::start_in(folder, None).await;
    let mut events = Events::follow(&served, Some(&place)).await;
    let (_, name, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), data), ("WebhookDLQEvent", told(&dead)), "what was missed is told again");
    let wrong = served.request(Method::GET, "/topics/gateway:webhooks").header("Last-Event-ID", "yesterday");
    assert_eq!(answer(wrong.send().await.unwrap()).await.1["code"], "last_event_id_invalid");
    drop(events);
    served.stop().await;
}

#[tokio::test]
async fn nobody_serves_other_machines_without_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(settings(folder.path().join("gateway.db"))).await.unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = serve(gateway, listener, None, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("GATEWAY_TOKEN"), "{error}");
}
