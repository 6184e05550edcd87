//! Every route of a server, from its own description, asked well and badly while it logs everything it can: its log, its
//! problems and its metrics hold no secret and no payload.

use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::eventually;
use postrider_promises::canary;
use postrider_promises::process::PATIENCE;
use reqwest::Method;
use serde_json::{Value, json};

use crate::leaks::{ENDPOINT_SECRET, HEADER, NEXT_SECRET, WRONG_KEY, must_not_leak, payload};
use crate::stage::{Api, Stage, on_both};

on_both! {
    /// P20, on everything that a server answers and logs.
    no_route_shows_a_secret_or_a_payload_unasked
}

/// What these routes are for is to show one, or, the last of them, what a receiver answered: here, what it got.
const SHOW_WHAT_WAS_ASKED: [(&str, &str); 7] = [
    ("post", "/v1/endpoints"),
    ("post", "/v1/endpoints/{id}/rotate-secret"),
    ("get", "/v1/events"),
    ("get", "/v1/events/{id}"),
    ("get", "/v1/deliveries"),
    ("get", "/v1/deliveries/{id}"),
    ("get", "/v1/deliveries/{id}/why"),
];

async fn no_route_shows_a_secret_or_a_payload_unasked(stage: Stage) {
    let format = if stage.is_postgres() { "pretty" } else { "json" };
    let stage = stage.with("POSTRIDER_LOG", "trace").with("POSTRIDER_LOG_FORMAT", format);
    let echo = Receiver::start(|request, number| {
        Answer::status(if number == 1 { 500 } else { 200 }).header("x-echo", "of-it").body(request.body.clone())
    })
    .await;
    let served = stage.serve(&["--retry-schedule", "10ms", "--poll-interval", "100ms"]).await;
    let ids = Ids::make(&served.api, &echo).await;
    let document = served.api.get("/openapi.json").await;
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let route = Route {
                method: Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(),
                path,
                has_body: operation["requestBody"].is_object(),
                shows_what_was_asked: SHOW_WHAT_WAS_ASKED.contains(&(method.as_str(), path.as_str())),
            };
            asked += route.ask(&served.api, &ids.fill(path)).await;
        }
    }
    assert!(asked > 200, "the description lists what there is: {asked}");
    for path in ["/", "/docs", "/healthz", "/readyz", "/metrics"] {
        let (_, answer) = served.api.ask(served.api.request(Method::GET, path)).await;
        must_not_leak(path, &answer.to_string());
    }
    let key = served.api.key.clone();
    let text = served.running.stopped().await;
    assert!(text.contains("TRACE"), "it logs everything");
    must_not_leak("the log", &text);
    assert_eq!(text.matches(&key).count(), 1, "the first key is printed once, and in no log");
}

/// Something of everything, for paths that name it.
struct Ids {
    endpoint: String,
    event: String,
    delivery: String,
    key: String,
}

impl Ids {
    async fn make(api: &Api, echo: &Receiver) -> Self {
        let endpoint = json!({
            "url": echo.url(), "secret": ENDPOINT_SECRET, "event_types": ["a.*"],
            "headers": { "authorization": HEADER, "x-api-token": HEADER },
        });
        let endpoint = api.post("/v1/endpoints", &endpoint).await["id"].as_str().unwrap().to_owned();
        let event = json!({ "type": "a.b", "payload": { "x": canary::PAYLOAD }, "once": { "subject": "plan-1" } });
        let event = api.post("/v1/events", &event).await;
        let delivery = event["deliveries"][0]["id"].as_str().unwrap().to_owned();
        eventually("it fails once, and is delivered", PATIENCE, async || {
            (api.get(&format!("/v1/deliveries/{delivery}")).await["status"] == "delivered").then_some(())
        })
        .await;
        let shown = api.get(&format!("/v1/deliveries/{delivery}")).await;
        assert!(shown.to_string().contains(canary::PAYLOAD), "the receiver's answer is kept: {shown}");
        let key = api.post("/v1/keys", &json!({ "name": "another", "scope": "read" })).await;
        let text = |value: &Value| value["id"].as_str().unwrap().to_owned();
        Self { endpoint, event: text(&event), delivery, key: text(&key) }
    }

    fn fill(&self, path: &str) -> String {
        let id = match path.split('/').nth(2) {
            Some("endpoints") => &self.endpoint,
            Some("events") => &self.event,
            Some("deliveries") => &self.delivery,
            Some("keys") => &self.key,
            _ => "",
        };
        path.replace("{id}", id).replace("{subject}", "plan-1")
    }
}

/// One route, as the description has it.
struct Route<'a> {
    method: Method,
    path: &'a str,
    has_body: bool,
    shows_what_was_asked: bool,
}

impl Route<'_> {
    /// Asks in every way, and returns in how many.
    async fn ask(&self, api: &Api, at: &str) -> usize {
        let (method, what) = (&self.method, format!("{} {}", self.method, self.path));
        let mut stranger = api.clone();
        WRONG_KEY.clone_into(&mut stranger.key);
        // Nobody, and somebody else.
        let mut requests = vec![
            api.request(method.clone(), at).header("authorization", ""),
            api.request(method.clone(), at).header("authorization", format!("Basic {HEADER}")),
            stranger.request(method.clone(), at),
        ];
        let questions = format!("{at}?limit={HEADER}&cursor={HEADER}&after={HEADER}");
        requests.push(api.request(method.clone(), &questions));
        // A stream has no end, and is asked only badly.
        if *method == Method::GET && self.path != "/v1/stream" {
            requests.push(api.request(method.clone(), at).header("cookie", HEADER));
        }
        if self.has_body {
            let with_type = |value| api.request(method.clone(), at).header("content-type", value);
            requests.extend(bodies().into_iter().map(|body| with_type("application/json").body(body)));
            requests.push(with_type("text/plain").body(payload()));
        }
        let count = requests.len();
        for request in requests {
            let (status, answer) = api.ask(request).await;
            assert!(status < 500, "{what}: {status} {answer}");
            if status >= 400 || !self.shows_what_was_asked {
                must_not_leak(&format!("{what}, {status},"), &answer.to_string());
            }
        }
        count
    }
}

/// What may be posted by mistake, or on purpose: a payload, a secret and a header in places where they belong, of a form
/// that they must not have, and in places where they do not belong.
fn bodies() -> Vec<Vec<u8>> {
    let data = payload();
    let event = |payload: &str| format!(r#"{{"type":"a.b","payload":{payload}}}"#);
    let endpoint = |field: &str, value: &str| format!(r#"{{"url":"http://127.0.0.1:9/","{field}":{value}}}"#);
    let canary = canary::PAYLOAD;
    let mut bodies: Vec<String> = vec![
        data[..data.len() - 1].to_owned(),
        format!("{data} {data}"),
        format!("\"{canary}\""),
        format!("[7, \"{canary}\"]"),
        format!("[{data}, {data}"),
        format!(r#"{{"unknown":"{canary}"}}"#),
        event(&data),
        event(&format!("\"{canary}")),
        event(&format!("\"{canary}\\ud800\"")),
        event(&format!("{{\"x\":\"{canary}\",}}")),
        event(&format!("{{\"x\":\"{canary}\",\"y\":{}", "[".repeat(200))),
        event(&format!("\"{canary}{}\"", "x".repeat(300_000))),
        format!("[{}]", event(&format!("\"{canary}\",\"type\":7"))),
        format!(r#"{{"payload":{data}}}"#),
        format!(r#"{{"type":7,"payload":{data}}}"#),
        format!(r#"{{"type":"a.b","payload":{data},"once":"{canary}"}}"#),
        format!(r#"{{"type":"a.b","payload":{data},"deliver_at":"{canary}"}}"#),
        format!(r#"{{"type":"a.b","payload":{data},"idempotency_key":"k-1"}}"#),
        format!(r#"{{"type":"a.c","payload":{data},"idempotency_key":"k-1"}}"#),
        format!(r#"{{"overlap":7,"secret":"{NEXT_SECRET}"}}"#),
        format!(r#"{{"overlap":"{canary}","secret":"{NEXT_SECRET}"}}"#),
    ];
    for secret in ["\"whsec_canary!\"", "\"canary\"", "[\"canary-canary-canary\"]", "{\"canary\":1}", "\"whsec_"] {
        bodies.push(endpoint("secret", secret));
        bodies.push(format!(r#"{{"secret":{secret}}}"#));
    }
    for headers in [
        format!("\"{HEADER}\""),
        format!("[\"{HEADER}\"]"),
        format!(r#"{{"authorization":["{HEADER}"]}}"#),
        format!(r#"{{"authorization":"{HEADER}\r\nx: y"}}"#),
        format!(r#"{{"host":"{HEADER}"}}"#),
        format!(r#"{{"authorization":"{HEADER}{}"}}"#, "x".repeat(10_000)),
    ] {
        bodies.push(endpoint("headers", &headers));
        bodies.push(format!(r#"{{"headers":{headers}}}"#));
    }
    let mut bodies: Vec<Vec<u8>> = bodies.into_iter().map(String::into_bytes).collect();
    bodies.push([canary.as_bytes(), &[0xff, 0xfe]].concat());
    bodies.push(event(&format!("\"{canary}\u{0}\"")).into_bytes());
    bodies
}
