//! Who may do what: keys, scopes, tenants, and the mode without keys.

use postrider::Scope;
use postrider_conformance::wait::PATIENCE;
use postrider_server::{Server, ServerConfig, Service, ServiceSettings};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;

use crate::support::{Api, answer, sqlite};

async fn with_key(
    api: &Api,
    key: &str,
    tenant: Option<&str>,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let mut request = api.bare(method, path).bearer_auth(key);
    if let Some(tenant) = tenant {
        request = request.header("postrider-tenant", tenant);
    }
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    answer(request).await
}

#[tokio::test]
async fn without_a_key_that_opens_something_nothing_is_told() {
    let api = Api::start().await;
    let unknown = postrider::KeyToken::generate();
    for (authorization, code) in [
        (None, "key_missing"),
        (Some(String::new()), "key_invalid"),
        (Some("Bearer".to_owned()), "key_invalid"),
        (Some("Bearer prk_short".to_owned()), "key_invalid"),
        (Some(format!("Basic {}", api.admin)), "key_invalid"),
        (Some(api.admin.clone()), "key_invalid"),
        (Some(format!("Bearer {}", unknown.reveal())), "key_invalid"),
    ] {
        for path in ["/v1/events", "/v1/overview", "/v1/events/evt_01k2b7wq6se3yv5r3q8h0m4d9x"] {
            let mut request = api.bare(Method::GET, path);
            if let Some(authorization) = &authorization {
                request = request.header("authorization", authorization);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let (status, problem) = crate::support::read(response).await;
            assert_eq!((status, problem["code"].as_str()), (401, Some(code)), "{authorization:?} {path}");
        }
    }
    let lower = api.bare(Method::GET, "/v1/events").header("authorization", format!("bearer {}", api.admin));
    assert_eq!(answer(lower).await.0, 200, "the scheme's case does not matter");
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"] {
        assert_eq!(answer(api.bare(Method::GET, path)).await.0, 200, "{path} needs none");
    }
}

#[tokio::test]
async fn the_first_key_is_made_once() {
    let api = Api::start().await;
    assert!(postrider::KeyToken::parse(&api.admin).is_some());
    assert_eq!(api.service.ensure_first_key().await.unwrap(), None);
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_at_once_here_and_soon_elsewhere() {
    let api = Api::start().await;
    let operator = postrider::store::Operator("test".to_owned());
    let key = api.key(Some("acme"), Scope::Read).await;
    assert_eq!(with_key(&api, &key, None, Method::GET, "/v1/events", None).await.0, 200);
    let id = api.store.keys(Some("acme"), &postrider::PageRequest::default()).await.unwrap().items[0].id;
    let revoked =
        answer(api.request(Method::DELETE, &format!("/v1/keys/{id}")).header("postrider-tenant", "acme")).await;
    assert_eq!(revoked.0, 204, "{revoked:?}");
    assert_eq!(with_key(&api, &key, None, Method::GET, "/v1/events", None).await.0, 401, "at once");

    let key = api.key(Some("acme"), Scope::Read).await;
    assert_eq!(with_key(&api, &key, None, Method::GET, "/v1/events", None).await.0, 200);
    let id = api.store.keys(Some("acme"), &postrider::PageRequest::default()).await.unwrap().items[0].id;
    // As another process would: this one is not told.
    assert!(api.store.revoke_key(id, None, &operator).await.unwrap());
    let closed = async || {
        let (status, _) = with_key(&api, &key, None, Method::GET, "/v1/events", None).await;
        (status == 401).then_some(())
    };
    postrider_conformance::eventually("the key opens nothing here either", PATIENCE, closed).await;
}

#[tokio::test]
async fn a_scope_permits_what_it_says() {
    let api = Api::start().await;
    let read = api.key(None, Scope::Read).await;
    let write = api.key(None, Scope::Write).await;
    let event = || Some(json!({"type": "a.b", "payload": 1}));
    let (status, problem) = with_key(&api, &read, None, Method::POST, "/v1/events", event()).await;
    assert_eq!((status, &problem["code"]), (403, &json!("scope_insufficient")));
    assert_eq!(with_key(&api, &read, None, Method::POST, "/v1/events/batch", Some(json!([]))).await.0, 403);
    assert_eq!(with_key(&api, &read, None, Method::GET, "/v1/events", None).await.0, 200);
    assert_eq!(with_key(&api, &write, None, Method::POST, "/v1/events", event()).await.0, 202);
    assert_eq!(with_key(&api, &write, None, Method::GET, "/v1/overview", None).await.0, 200);
}

#[tokio::test]
async fn p21_tenants_do_not_see_each_others_events() {
    let api = Api::start().await;
    let acme = api.key(Some("acme"), Scope::Admin).await;
    let other = api.key(Some("other"), Scope::Admin).await;
    let secret = json!({"type": "a.b", "payload": "of acme", "idempotency_key": "k", "once": {"subject": "s"}});
    let (status, enqueued) = with_key(&api, &acme, None, Method::POST, "/v1/events", Some(secret.clone())).await;
    assert_eq!(status, 202);
    let path = format!("/v1/events/{}", enqueued["id"].as_str().unwrap());

    let (status, problem) = with_key(&api, &other, None, Method::GET, &path, None).await;
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("event_not_found")),
        "not 403: nobody is told that it is there"
    );
    let (_, nothing) = with_key(&api, &other, None, Method::GET, "/v1/events", None).await;
    assert_eq!(nothing["data"], json!([]));
    let (_, overview) = with_key(&api, &other, None, Method::GET, "/v1/overview", None).await;
    assert_eq!(overview["pending"], 0);
    let (status, own) = with_key(&api, &other, None, Method::POST, "/v1/events", Some(secret)).await;
    assert_eq!((status, &own["claimed"]), (202, &json!(true)), "keys and subjects are the tenant's own");
    assert_ne!(own["id"], enqueued["id"]);

    for tenant in ["acme", "*"] {
        let (status, problem) = with_key(&api, &other, Some(tenant), Method::GET, &path, None).await;
        assert_eq!((status, &problem["code"]), (403, &json!("tenant_forbidden")), "{tenant}");
    }
    assert_eq!(with_key(&api, &acme, Some("acme"), Method::GET, &path, None).await.0, 200);

    assert_eq!(with_key(&api, &api.admin, None, Method::GET, &path, None).await.0, 404, "the default tenant's only");
    assert_eq!(with_key(&api, &api.admin, Some("acme"), Method::GET, &path, None).await.0, 200);
    let (_, all) = with_key(&api, &api.admin, Some("*"), Method::GET, "/v1/events", None).await;
    assert_eq!(all["data"].as_array().unwrap().len(), 2);
    let event = Some(json!({"type": "a.b", "payload": 1}));
    let (status, problem) = with_key(&api, &api.admin, Some("*"), Method::POST, "/v1/events", event).await;
    assert_eq!((status, &problem["code"]), (422, &json!("tenant_ambiguous")));
    let long = "x".repeat(256);
    for tenant in ["", " ", long.as_str()] {
        let (status, problem) = with_key(&api, &api.admin, Some(tenant), Method::GET, "/v1/events", None).await;
        assert_eq!((status, &problem["code"]), (422, &json!("tenant_invalid")), "{tenant:?}");
    }
}

#[tokio::test]
async fn without_keys_only_local_requests_are_taken() {
    let api = Api::start_with(|setup| setup.config.dev = true).await;
    let port = api.address.port();
    let ask = |host: String, more: &'static str| {
        let api = &api;
        async move {
            let head = format!("GET /v1/events HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n");
            let answer = api.raw(head.as_bytes()).await;
            (answer.status, answer.json()["code"].as_str().map(str::to_owned))
        }
    };
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "[::1]".to_owned(), "LOCALHOST".to_owned()] {
        assert_eq!(ask(host.clone(), "").await, (200, None), "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", ""] {
        assert_eq!(ask(host.to_owned(), "").await, (403, Some("host_forbidden".to_owned())), "{host}");
    }
    for more in ["origin: http://evil.example\r\n", "origin: null\r\n", "sec-fetch-site: cross-site\r\n"] {
        let answer = ask("localhost".to_owned(), more).await;
        assert_eq!(answer, (403, Some("origin_forbidden".to_owned())), "{more}");
    }
    assert_eq!(ask("localhost".to_owned(), "origin: http://localhost:8400\r\n").await, (200, None));
    let event = api.bare(Method::POST, "/v1/events").header("content-type", "application/json");
    assert_eq!(answer(event.body(r#"{"type":"a.b","payload":1}"#)).await.0, 202, "no key is needed");
}

#[tokio::test]
async fn without_keys_it_does_not_listen_to_the_world() {
    let (store, _folder) = sqlite().await;
    let service = Service::new(Arc::new(store), ServiceSettings::default());
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let server = Server::new(service, ServerConfig { dev: true, ..ServerConfig::default() });
    let error = server.run(listener, std::future::pending()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("loopback"), "{error}");
}

/// The lines that set cookies on the page to sign in.
async fn door_cookies(api: &Api, proto: Option<&str>) -> Vec<String> {
    let request = api.bare(Method::GET, "/sign-in");
    let request = proto.into_iter().fold(request, |request, proto| request.header("x-forwarded-proto", proto));
    let response = request.send().await.unwrap();
    let lines = response.headers().get_all("set-cookie").iter();
    lines.map(|line| line.to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn cookies_are_kept_to_https_where_a_proxy_is_believed() {
    let believing = Api::start_with(|setup| setup.config.trust_forwarded_proto = true).await;
    for proto in ["https", "HTTPS", "http, https"] {
        let lines = door_cookies(&believing, Some(proto)).await;
        assert!(lines[0].starts_with("__Host-postrider_door=") && lines[0].ends_with("; Secure"), "{lines:?}");
    }
    let doubting = Api::start().await;
    for (api, proto) in [(&believing, None), (&believing, Some("http")), (&doubting, Some("https")), (&doubting, None)]
    {
        let lines = door_cookies(api, proto).await;
        assert!(lines[0].starts_with("postrider_door=") && !lines[0].contains("Secure"), "{lines:?}");
    }
}

#[tokio::test]
async fn without_keys_the_dashboard_is_open_to_this_machine_and_its_forms_are_not_open_to_other_sites() {
    let api = Api::start_with(|setup| setup.config.dev = true).await;
    let page = api.bare(Method::GET, "/").send().await.unwrap();
    assert_eq!((page.status().as_u16(), page.url().path()), (200, "/"));
    let page = page.text().await.unwrap();
    let token = page.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let form = |token: &str| {
        let body = format!("csrf={token}&tenant=default&name=guest&scope=read");
        api.bare(Method::POST, "/keys").header("content-type", "application/x-www-form-urlencoded").body(body)
    };
    let own = api.url("").trim_end_matches('/').to_owned();
    for (token, origin, status) in [
        (token, own.as_str(), 200),
        ("", own.as_str(), 403),
        (token, "http://evil.example", 403),
        (token, "http://localhost:1", 403),
    ] {
        let answer = form(token).header("origin", origin).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{origin} {token}");
    }
    let keys = api.get("/v1/keys").await.1;
    let made = keys["data"].as_array().unwrap().iter().filter(|key| key["name"] == "guest").count();
    assert_eq!(made, 1, "{keys}");
}
