//! Requests made from the API's own description, so that a new route is asked the day it is there.
//!
//! A parameter or a property that this file has no value for fails the test: whoever adds one teaches it here what a
//! stranger would try.

use postrider::Scope;
use postrider_promises::canary;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::place::{Place, Request};
use super::things::{EVENT_TYPE, IDEMPOTENCY_KEY, SUBJECT, TOPIC, Things};

/// One operation of the description.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// No key is needed.
    pub(crate) is_open: bool,
    /// The answer has no end.
    pub(crate) is_stream: bool,
    queries: Vec<String>,
    headers: Vec<String>,
    body: Option<Body>,
}

/// What a route takes: the properties of an object, and which of them it must have.
#[derive(Debug)]
struct Body {
    properties: Vec<String>,
    required: Vec<String>,
    is_list: bool,
}

/// The description as a running server gives it.
pub(crate) async fn described(place: &Place) -> Vec<Route> {
    let document = place.ask(&Request::get("/openapi.json"), None).await.expect(200);
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            routes.push(Route::read(&document, path, method, operation));
        }
    }
    assert!(routes.len() >= 25, "the description has {} operations", routes.len());
    // What removes things comes last, so that the others find them.
    routes.sort_by_key(|route| (route.method == Method::DELETE, route.path.clone()));
    routes
}

impl Route {
    fn read(document: &Value, path: &str, method: &str, operation: &Value) -> Self {
        let parameters = |place: &str| {
            let all = operation["parameters"].as_array().into_iter().flatten();
            let here = all.filter(|parameter| parameter["in"] == place);
            here.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
        };
        Self {
            method: method.to_uppercase().parse().unwrap(),
            path: path.to_owned(),
            is_open: operation["security"] == json!([]),
            is_stream: operation["responses"]["200"]["content"]["text/event-stream"].is_object(),
            queries: parameters("query"),
            headers: parameters("header"),
            body: operation.get("requestBody").map(|body| Body::read(document, path, body)),
        }
    }

    /// The least scope that a key needs: to look, to act, or to manage who may.
    pub(crate) fn needs(&self) -> Scope {
        let manages = ["/v1/keys", "/v1/audit"].iter().any(|managed| self.path.starts_with(managed));
        match (manages, &self.method) {
            (true, _) => Scope::Admin,
            (false, &Method::GET) => Scope::Read,
            (false, _) => Scope::Write,
        }
    }

    /// Whether it is about one thing, which somebody has.
    pub(crate) fn names_a_thing(&self) -> bool {
        self.path.contains("{id}")
    }

    /// Asked about each of these things, with nothing but what must be said.
    pub(crate) fn plain(&self, of: &Things) -> Vec<Request> {
        let ask = |path: String| {
            let body = self.body.as_ref().map(|body| body.wrap(body.least(of)));
            Request { body, ..Request::new(self.method.clone(), path) }
        };
        self.paths(of).into_iter().map(ask).collect()
    }

    /// The same, and with everything that can be said, one at a time.
    pub(crate) fn thorough(&self, of: &Things) -> Vec<Request> {
        let mut requests = Vec::new();
        for plain in self.plain(of) {
            for name in &self.queries {
                for value in query_values(&self.path, name, of) {
                    let path = format!("{}?{name}={value}", plain.path);
                    requests.push(Request { path, ..plain.clone() });
                }
            }
            for name in &self.headers {
                requests.extend(header_values(name, of).iter().map(|value| plain.clone().header(name, value)));
            }
            for body in self.body.iter().flat_map(|body| body.variants(of)) {
                requests.push(Request { body: Some(body), ..plain.clone() });
            }
            requests.push(plain);
        }
        requests
    }

    fn paths(&self, of: &Things) -> Vec<String> {
        let Some((before, rest)) = self.path.split_once('{') else { return vec![self.path.clone()] };
        let (name, after) = rest.split_once('}').unwrap();
        assert!(!after.contains('{'), "teach this test a path with two parameters: {}", self.path);
        let collection = before.trim_end_matches('/').rsplit('/').next().unwrap();
        let values = match (collection, name) {
            ("endpoints", "id") => of.endpoints.clone(),
            ("events", "id") => of.events.clone(),
            ("deliveries", "id") => of.deliveries.clone(),
            ("keys", "id") => of.keys.clone(),
            ("once", "subject") => vec![SUBJECT.to_owned(), SUBJECT.replace('/', "%2F")],
            _ => panic!("teach this test what to put for {{{name}}} in {}", self.path),
        };
        values.iter().map(|value| format!("{before}{value}{after}")).collect()
    }
}

impl Body {
    fn read(document: &Value, path: &str, body: &Value) -> Self {
        let mut schema = &body["content"]["application/json"]["schema"];
        let mut is_list = false;
        loop {
            if let Some(reference) = schema["$ref"].as_str() {
                schema = document.pointer(reference.trim_start_matches('#')).unwrap();
            } else if schema["oneOf"].is_array() {
                schema = &schema["oneOf"][0];
            } else if schema["type"] == "array" {
                is_list = true;
                schema = &schema["items"];
            } else {
                break;
            }
        }
        let properties = schema["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("teach this test the body of {path}: {schema}"));
        let required = schema["required"].as_array().into_iter().flatten();
        Self {
            properties: properties.keys().cloned().collect(),
            required: required.map(|name| name.as_str().unwrap().to_owned()).collect(),
            is_list,
        }
    }

    fn least(&self, of: &Things) -> Map<String, Value> {
        self.required.iter().map(|name| (name.clone(), property_values(name, of).swap_remove(0))).collect()
    }

    fn variants(&self, of: &Things) -> Vec<Value> {
        let mut variants = Vec::new();
        for name in &self.properties {
            for value in property_values(name, of) {
                let mut body = self.least(of);
                body.insert(name.clone(), value);
                variants.push(self.wrap(body));
            }
        }
        variants
    }

    fn wrap(&self, body: Map<String, Value>) -> Value {
        if self.is_list { json!([body]) } else { Value::Object(body) }
    }
}

fn query_values(path: &str, name: &str, of: &Things) -> Vec<String> {
    let some = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
    match name {
        "status" if path.ends_with("endpoints") => some(&["active", "paused", "disabled"]),
        "status" => some(&["pending", "failed", "delivered", "dead", "cancelled"]),
        "endpoint_id" => of.endpoints.clone(),
        "event_id" => of.events.clone(),
        "event_type" | "type" => some(&[EVENT_TYPE, "order.failed", "order.waiting"]),
        "since" => some(&["30d"]),
        "until" => some(&["2100-01-01T00:00:00Z"]),
        "limit" => some(&["1", "250"]),
        "cursor" => of.cursors.iter().cloned().collect(),
        "prefix" => some(&[SUBJECT, "p"]),
        "topic" => some(&[TOPIC]),
        "fact" => some(&["delivery.cancelled"]),
        "after" => of.places.iter().cloned().chain(some(&["0"])).collect(),
        _ => panic!("teach this test what to put for {name}= in {path}"),
    }
}

fn header_values(name: &str, of: &Things) -> Vec<String> {
    match name {
        "Postrider-Tenant" => vec![of.tenant.to_owned(), "*".to_owned()],
        "Idempotency-Key" => vec![IDEMPOTENCY_KEY.to_owned()],
        "Last-Event-ID" => of.places.iter().cloned().chain(["0".to_owned()]).collect(),
        _ => panic!("teach this test what to put into the header {name}"),
    }
}

/// The first is what is said where something must be.
fn property_values(name: &str, of: &Things) -> Vec<Value> {
    let each = |values: &[String]| values.iter().map(|value| json!(value)).collect();
    let nowhere = json!("http://127.0.0.1:9/");
    match name {
        "payload" => vec![json!({"all": canary::PAYLOAD})],
        "destination_url" | "url" => vec![nowhere],
        "endpoint_id" => each(&of.endpoints),
        "event_id" => each(&of.events),
        "type" | "event_type" => vec![json!(EVENT_TYPE), json!("order.failed")],
        "deliver_at" | "until" => vec![json!("2100-01-01T00:00:00Z")],
        "since" => vec![json!("30d")],
        "once" => vec![json!({"subject": SUBJECT}), json!({"subject": SUBJECT, "generation": 1})],
        "metadata" => vec![json!({"note": "mine"})],
        "topic" => vec![json!(TOPIC)],
        "idempotency_key" => vec![json!(IDEMPOTENCY_KEY)],
        "event_types" => vec![json!(["*"]), json!(["order.*"])],
        "secret" => vec![json!(canary::SIGNING_SECRET)],
        "retry_schedule" => vec![json!(["1h"])],
        "max_attempts" | "max_in_flight" => vec![json!(1)],
        "rate_limit" => vec![json!("1000/s")],
        "timeout" => vec![json!("1s")],
        "signature" => vec![json!("standard"), json!({"scheme": "standard"})],
        "headers" => vec![json!({"x-note": "mine"})],
        "description" | "name" | "reason" => vec![json!("mine")],
        "overlap" => vec![json!("0s")],
        "status" => vec![json!("dead"), json!("failed"), json!("cancelled")],
        "dry_run" => vec![json!(true)],
        "limit" => vec![json!(10_000)],
        "tenant" => vec![json!(of.tenant), Value::Null],
        "scope" => vec![json!("read"), json!("admin")],
        _ => panic!("teach this test what to put for \"{name}\" in a body"),
    }
}
