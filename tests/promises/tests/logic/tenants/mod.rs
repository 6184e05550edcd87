//! P21: a tenant never sees another's data, nor changes it.
//!
//! A real server is asked everything that its own description says can be asked, with every kind of key, about the things
//! of somebody else: by their ids in paths, in filters and in bodies, by the cursors and places that only the owner was
//! given, under the same idempotency key, subject, topic and event type. A word that stands in everything that the owner
//! has must be in no answer, nor must any id that the question did not name; and what the owner sees afterwards is what it
//! saw before.

mod place;
mod routes;
mod things;

use std::collections::BTreeMap;

use place::{Answer, Place, Request};
use postrider::{KeyToken, Scope};
use reqwest::Method;
use routes::{Route, described};
use serde_json::{Value, json};
use things::{TOPIC, Things, bearer, id, receiver};

/// P21 on a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_opens_what_is_another_tenants_on_sqlite() {
    every_route_with_every_key(Place::on_sqlite().await).await;
}

/// P21 on a server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_opens_what_is_another_tenants_on_postgres() {
    every_route_with_every_key(Place::on_postgres().await).await;
}

async fn every_route_with_every_key(place: Place) {
    let receiver = receiver().await;
    let acme = Things::all(&place, &receiver, "acme", "only-acme-knows-51c7").await;
    let globex = Things::all(&place, &receiver, "globex", "only-globex-knows-0d3e").await;
    let initech = Things::none(&place, "initech", "only-initech-knows-93b2").await;
    let stage = Stage { routes: described(&place).await, place, acme, globex, initech };

    let before = stage.owners_view().await;
    stage.without_a_key_nothing_opens().await;
    stage.owners_see_what_their_scope_permits().await;
    stage.who_has_nothing_sees_an_empty_server().await;
    stage.strangers_see_and_change_nothing().await;
    stage.a_key_for_all_tenants_means_the_default_one_unless_it_says_so().await;
    stage.each_scope_suffices_for_what_it_is_for().await;
    for (asked, was) in before {
        let is = stage.place.ask(&Request::get(&asked), Some(&stage.acme.admin)).await.expect(200);
        assert_eq!(is, was, "somebody else changed {asked}");
    }
    stage.place.stop().await;
}

struct Stage {
    place: Place,
    routes: Vec<Route>,
    acme: Things,
    globex: Things,
    /// It has nothing but keys.
    initech: Things,
}

impl Stage {
    /// Everything that the owner can look at and that stands still. How old something is does not, nor do the figures of
    /// the last minute.
    async fn owners_view(&self) -> BTreeMap<String, Value> {
        let moves = |route: &&Route| route.is_stream || route.path == "/v1/overview" || route.path.ends_with("/why");
        let mut view = BTreeMap::new();
        for route in self.routes.iter().filter(|route| route.method == Method::GET && !route.is_open && !moves(route)) {
            for request in route.plain(&self.acme) {
                let seen = self.place.ask(&request, Some(&self.acme.admin)).await.expect(200);
                view.insert(request.path, seen);
            }
        }
        assert!(view.len() >= 20, "{:?}", view.keys());
        view
    }

    /// Asks, and reads a stream until it has told this stranger something of its own, which was announced last.
    async fn ask(&self, route: &Route, request: &Request, key: &str, marker: &str) -> Answer {
        if !route.is_stream {
            return self.place.ask(request, Some(key)).await;
        }
        let says_where =
            request.path.contains("after=") || request.headers.iter().any(|(name, _)| name == "Last-Event-ID");
        let from_the_start = request.clone().header("Last-Event-ID", "0");
        self.place.follow(if says_where { request } else { &from_the_start }, key, marker).await
    }

    async fn without_a_key_nothing_opens(&self) {
        let unknown = bearer(KeyToken::generate().reveal());
        let in_another_way = self.acme.admin.replace("Bearer", "Basic");
        let damaged = "Bearer prk_short".to_owned();
        let shown = [None, Some(""), Some("Bearer"), Some(&damaged), Some(&in_another_way), Some(&unknown)];
        for authorization in shown.into_iter().chain([Some(self.acme.revoked.as_str())]) {
            for route in &self.routes {
                for request in route.plain(&self.acme).into_iter().take(1) {
                    let answer = self.place.ask(&request, authorization).await;
                    let about = format!("{} {} with {:?}", request.method, request.path, authorization.map(str::len));
                    if route.is_open {
                        assert_eq!(answer.status, 200, "{about}: {}", answer.text);
                        shows_nothing(&self.globex, &request, &answer);
                    } else {
                        let expected = if authorization.is_none() { "key_missing" } else { "key_invalid" };
                        assert_eq!((answer.status, answer.code().as_str()), (401, expected), "{about}");
                    }
                    shows_nothing(&self.acme, &request, &answer);
                }
            }
        }
    }

    async fn owners_see_what_their_scope_permits(&self) {
        for owner in [&self.acme, &self.globex] {
            let mut shown = 0;
            for route in self.routes.iter().filter(|route| !route.is_open) {
                for (key, scope) in
                    [(&owner.read, Scope::Read), (&owner.write, Scope::Write), (&owner.admin, Scope::Admin)]
                {
                    if scope < route.needs() {
                        for request in route.plain(owner) {
                            let answer = self.place.ask(&request, Some(key)).await;
                            let refusal = (answer.status, answer.code());
                            assert_eq!(refusal, (403, "scope_insufficient".to_owned()), "{scope} {request:?}");
                        }
                    } else if route.method == Method::GET {
                        for request in route.plain(owner) {
                            let answer = self.ask(route, &request, key, &owner.deliveries[4]).await;
                            assert_eq!(answer.status, 200, "{scope} {request:?}: {}", answer.text);
                            shown += usize::from(answer.text.contains(owner.word));
                        }
                    }
                }
            }
            // Otherwise its absence elsewhere would say little.
            assert!(shown >= 30, "the owner was shown its own word only {shown} times");
        }
    }

    async fn who_has_nothing_sees_an_empty_server(&self) {
        let looking =
            self.routes.iter().filter(|route| route.method == Method::GET && !route.is_open && !route.is_stream);
        for route in looking.filter(|route| route.needs() == Scope::Read) {
            for request in route.thorough(&self.acme) {
                let answer = self.place.ask(&request, Some(&self.initech.read)).await;
                shows_nothing(&self.acme, &request, &answer);
                shows_nothing(&self.globex, &request, &answer);
                if answer.status == 200 {
                    let shown = answer.json();
                    assert!(shown["data"].as_array().is_none_or(Vec::is_empty), "{request:?}: {shown}");
                    assert!(counts_nothing(&shown), "{request:?}: {shown}");
                }
            }
        }
    }

    async fn strangers_see_and_change_nothing(&self) {
        let Things { read, write, admin, deliveries, .. } = &self.globex;
        let mut asked = 0;
        for route in self.routes.iter().filter(|route| !route.is_open) {
            for (key, scope) in [(read, Scope::Read), (write, Scope::Write), (admin, Scope::Admin)] {
                let requests = if scope == Scope::Admin { route.thorough(&self.acme) } else { route.plain(&self.acme) };
                for request in requests {
                    let answer = self.ask(route, &request, key, &deliveries[4]).await;
                    let about = format!("{scope} {request:?}: {} {}", answer.status, answer.text);
                    shows_nothing(&self.acme, &request, &answer);
                    asked += 1;
                    if scope < route.needs() {
                        assert_eq!((answer.status, answer.code().as_str()), (403, "scope_insufficient"), "{about}");
                    } else if request.headers.iter().any(|(name, _)| name == "Postrider-Tenant") {
                        assert_eq!((answer.status, answer.code().as_str()), (403, "tenant_forbidden"), "{about}");
                    } else if route.names_a_thing() {
                        let is_plain =
                            request.headers.is_empty() && !request.path.contains('?') && route.method == Method::GET;
                        let code = answer.code();
                        let not_there = answer.status == 404 && code.ends_with("_not_found");
                        assert!(not_there || (answer.status == 422 && !is_plain), "{about}");
                    } else {
                        assert!(answer.status < 500, "{about}");
                        reaches_none_of(&self.acme, &request, &answer);
                    }
                }
            }
        }
        assert!(asked >= 300, "only {asked} questions were asked");
    }

    async fn a_key_for_all_tenants_means_the_default_one_unless_it_says_so(&self) {
        let mut keys = Vec::new();
        for scope in ["read", "write", "admin"] {
            let new = json!({"name": "for all", "tenant": null, "scope": scope});
            let made = self.place.ask(&Request::post("/v1/keys", new), Some(&bearer(&self.place.admin))).await;
            keys.push(bearer(made.expect(201)["key"].as_str().unwrap()));
        }
        let [read, write, admin] = <[String; 3]>::try_from(keys).unwrap();
        let marker = self.announced_last(&write).await;
        let mut shown = 0;
        for route in self.routes.iter().filter(|route| !route.is_open) {
            let key = if route.needs() == Scope::Admin { &admin } else { &read };
            for request in route.thorough(&self.acme) {
                let names_tenant = request.headers.iter().any(|(name, _)| name == "Postrider-Tenant");
                // Who manages all tenants is shown all keys, its own among them.
                let lists_keys = route.path == "/v1/keys";
                if route.method == Method::GET && !names_tenant && !lists_keys {
                    let answer = self.ask(route, &request, key, &marker).await;
                    shows_nothing(&self.acme, &request, &answer);
                    assert!(!route.names_a_thing() || answer.status == 404, "{request:?}: {}", answer.text);
                }
            }
            for request in route.plain(&self.acme) {
                let of_all = request.clone().header("Postrider-Tenant", "*");
                let of_acme = request.header("Postrider-Tenant", self.acme.tenant);
                if route.method == Method::GET {
                    let answer = self.ask(route, &of_acme, key, &self.acme.deliveries[4]).await;
                    assert_eq!(answer.status, 200, "{of_acme:?}: {}", answer.text);
                    shown += usize::from(answer.text.contains(self.acme.word));
                } else {
                    let answer = self.place.ask(&of_acme, Some(&read)).await;
                    assert_eq!((answer.status, answer.code().as_str()), (403, "scope_insufficient"), "{of_acme:?}");
                    // Keys are everybody's business for who manages all tenants: there `*` names no tenant, and need not.
                    if route.needs() == Scope::Write {
                        let answer = self.place.ask(&of_all, Some(&write)).await;
                        assert_eq!((answer.status, answer.code().as_str()), (422, "tenant_ambiguous"), "{of_all:?}");
                    }
                }
            }
        }
        assert!(shown >= 10, "who may look at a tenant was shown its word only {shown} times");
    }

    /// Cancels a delivery under a key's own tenant, and returns what is announced with it.
    async fn announced_last(&self, write: &str) -> String {
        let event = json!({
            "type": "order.paid", "payload": {"all": postrider_promises::canary::PAYLOAD}, "topic": TOPIC,
            "destination_url": "http://127.0.0.1:9/", "deliver_at": "2100-01-01T00:00:00Z",
        });
        let enqueued = self.place.ask(&Request::post("/v1/events", event), Some(write)).await.expect(202);
        let delivery = id(&enqueued["deliveries"][0]);
        let cancel = Request::post(format!("/v1/deliveries/{delivery}/cancel"), json!({}));
        self.place.ask(&cancel, Some(write)).await.expect(200);
        delivery
    }

    async fn each_scope_suffices_for_what_it_is_for(&self) {
        for route in self.routes.iter().filter(|route| route.method != Method::GET) {
            let key = if route.needs() == Scope::Admin { &self.globex.admin } else { &self.globex.write };
            let mut done = 0;
            for request in route.plain(&self.globex) {
                let answer = self.place.ask(&request, Some(key)).await;
                shows_nothing(&self.acme, &request, &answer);
                assert!(![401, 403].contains(&answer.status), "{request:?}: {}", answer.text);
                done += usize::from(answer.status < 300);
            }
            assert!(done > 0, "nobody could {} {} with its own things", route.method, route.path);
        }
    }
}

/// No answer has anything of somebody else's that the question did not name.
#[track_caller]
fn shows_nothing(of: &Things, request: &Request, answer: &Answer) {
    let named = request.text();
    for trace in of.traces() {
        let shown = answer.text.contains(trace) && !named.contains(trace);
        assert!(!shown, "{request:?} shows {}'s {trace}: {}", of.tenant, answer.text);
    }
}

/// What is asked about somebody else's ids in a body is refused, or is about nothing.
#[track_caller]
fn reaches_none_of(of: &Things, request: &Request, answer: &Answer) {
    let named = request.body.as_ref().map(Value::to_string).unwrap_or_default();
    let names_theirs = of.traces().iter().any(|trace| named.contains(trace));
    if names_theirs && answer.status < 300 {
        assert_eq!(answer.json()["matched"], 0, "{request:?}: {}", answer.text);
    }
}

/// Whether there is no number but zero in it.
fn counts_nothing(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(values) => values.iter().all(counts_nothing),
        Value::Object(values) => values.values().all(counts_nothing),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}
