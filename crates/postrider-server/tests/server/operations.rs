//! What orchestrators, Prometheus and whoever reads the log get.

use std::sync::Arc;
use std::time::Duration;

use postrider::Dispatcher;
use postrider_conformance::logs::Logs;
use postrider_server::{Server, ServerConfig, Service, ServiceSettings};
use postrider_sqlite::SqliteStore;
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Api, answer, client, sqlite};

#[tokio::test]
async fn a_server_is_ready_when_its_database_is() {
    let api = Api::start().await;
    assert_eq!(answer(api.bare(Method::GET, "/healthz")).await.0, 200);
    assert_eq!(answer(api.bare(Method::GET, "/readyz")).await.0, 200);
    assert_eq!(answer(api.bare(Method::HEAD, "/readyz")).await.0, 200);
}

#[tokio::test]
async fn a_server_without_its_schema_lives_but_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("empty.db")).unwrap();
    let api = Api::start_on(Arc::new(store), folder, |_| {}).await;
    assert_eq!(answer(api.bare(Method::GET, "/healthz")).await.0, 200);
    let (status, problem) = answer(api.bare(Method::GET, "/readyz")).await;
    assert_eq!((status, &problem["code"]), (503, &json!("store_schema")), "{problem}");
    assert_eq!(api.metric("postrider_store_up ").await, 0);
}

#[tokio::test]
async fn figures_are_told_without_anybodys_data() {
    let (store, folder) = sqlite().await;
    let dispatcher = Dispatcher::builder(Arc::new(store.clone())).build().unwrap();
    let monitor = dispatcher.monitor();
    let api = Api::start_on(Arc::new(store), folder, |setup| setup.monitor = Some(monitor)).await;
    let event = json!({"type": "a.b", "payload": "canary", "destination_url": "https://canary.example/hook"});
    assert_eq!(api.post("/v1/events", event.to_string()).await.0, 202);
    let response = api.bare(Method::GET, "/metrics").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    for line in [
        "# TYPE postrider_http_requests_total counter",
        "postrider_http_requests_total{route=\"/v1/events\",method=\"POST\",status=\"202\"} 1",
        "# TYPE postrider_http_request_duration_seconds histogram",
        "postrider_deliveries{status=\"pending\"} 1",
        "postrider_deliveries{status=\"dead\"} 0",
        "postrider_deliveries_due 1",
        "postrider_deliveries_in_flight 0",
        "postrider_deliveries_scheduled 0",
        "# TYPE postrider_oldest_due_age_seconds gauge",
        "postrider_attempts_total{outcome=\"timeout\"} 0",
        "postrider_attempt_responses_total{class=\"2xx\"} 0",
        "postrider_attempt_duration_seconds_bucket{le=\"+Inf\"} 0",
        "postrider_leases_lost_total 0",
        "postrider_lease_renewals_lost_total 0",
        "postrider_queue_depth 0",
        "postrider_queue_batch_size_count 1",
        "postrider_store_up 1",
        "# TYPE postrider_process_start_time_seconds gauge",
        "postrider_build_info{version=\"0.1.0\"} 1",
    ] {
        assert!(text.lines().any(|candidate| candidate.trim_end_matches(".0") == line), "{line} is missing:\n{text}");
    }
    assert!(!text.contains("canary"));
    // Each family is described once, which is what scrapers insist on.
    let mut described: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let count = described.len();
    described.sort_unstable();
    described.dedup();
    assert_eq!(described.len(), count);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name: String = line.chars().take_while(|character| *character != '{' && *character != ' ').collect();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let known = |name: &str| text.contains(&format!("# TYPE {name} "));
        assert!(known(&name) || known(base), "{line}");
    }
}

#[tokio::test]
async fn what_has_no_route_is_counted_under_one_name() {
    let api = Api::start().await;
    for path in ["/one", "/two", "/v1/three"] {
        assert_eq!(api.get(path).await.0, 404);
    }
    assert_eq!(api.metric("postrider_http_requests_total{route=\"unknown\",method=\"GET\",status=\"404\"}").await, 3);
}

#[tokio::test]
async fn a_dispatchers_process_serves_operations_only() {
    let (store, _folder) = sqlite().await;
    let service = Service::new(Arc::new(store), ServiceSettings::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::operations_only(service, ServerConfig::default());
    let task = tokio::spawn(server.run(listener, std::future::pending()));
    for (path, status) in
        [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/events", 404), ("/docs", 404), ("/", 404)]
    {
        let response = client().get(format!("http://{address}{path}")).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
    }
    task.abort();
}

#[tokio::test]
async fn every_answer_has_an_id_and_safe_headers() {
    let api = Api::start().await;
    for path in ["/v1/events", "/healthz", "/nothing", "/openapi.json", "/docs", "/"] {
        let response = api.request(Method::GET, path).send().await.unwrap();
        let headers = response.headers();
        assert!(!headers["x-request-id"].is_empty(), "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["x-frame-options"], "DENY", "{path}");
        // The dashboard's pages tell each other, so that a form of ours can be told from one of somebody else's.
        let referrer = if path == "/" { "same-origin" } else { "no-referrer" };
        assert_eq!(headers["referrer-policy"], referrer, "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
    let given = api.request(Method::GET, "/nothing").header("x-request-id", "abc-123").send().await.unwrap();
    assert_eq!(given.headers()["x-request-id"], "abc-123");
    assert_eq!(crate::support::read(given).await.1["request_id"], "abc-123");
    for odd in ["", "a b", "<script>", &"x".repeat(129)] {
        let response = api.request(Method::GET, "/nothing").header("x-request-id", odd).send().await.unwrap();
        assert_ne!(response.headers()["x-request-id"], odd, "an id that is no plain word is replaced");
    }
}

/// P20, as far as requests go: a line each, with what helps to find out what happened, and without what is nobody's business.
#[tokio::test]
async fn p20_a_request_is_told_in_the_log_without_its_secrets() {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let api = Api::start().await;
    let event = json!({"type": "a.b", "payload": "canary-payload", "metadata": {"a": "canary-metadata"}});
    assert_eq!(api.post("/v1/events", event.to_string()).await.0, 202);
    assert_eq!(api.get("/v1/events?type=canary-query").await.0, 200);
    let wrong = api.bare(Method::GET, "/v1/events").header("authorization", "Bearer prk_canary-key");
    assert_eq!(answer(wrong).await.0, 401);
    assert_eq!(api.get("/canary-path").await.0, 404);
    let lines = logs.lines_with(&[
        "INFO",
        "request_id",
        "method=POST",
        "/v1/events",
        "status=202",
        "duration_ms",
        "key=key_",
        "tenant=\"default\"",
    ]);
    assert_eq!(lines.len(), 1, "{}", logs.text());
    assert_eq!(logs.lines_with(&["INFO", "status=401"]).len(), 1);
    assert_eq!(logs.lines_with(&["INFO", "status=404"]).len(), 1);
    let ours: Vec<String> = logs.lines_with(&["postrider"]);
    assert!(!ours.is_empty());
    for line in ours {
        assert!(!line.contains("canary") && !line.contains(&api.admin), "{line}");
    }
}

#[tokio::test]
async fn counting_is_not_repeated_for_everybody_who_asks() {
    let api = Api::start().await;
    let (_, first) = api.get("/v1/overview").await;
    assert_eq!(first["oldest_due_age_ms"], json!(null));
    assert_eq!(first["rates"], json!({"delivered_per_minute": 0, "failed_per_minute": 0, "dead_per_minute": 0}));
    assert_eq!(
        api.post("/v1/events", r#"{"type":"a.b","payload":1,"destination_url":"https://a.example/"}"#).await.0,
        202
    );
    // An answer may be a little old, and says how old; soon there is a newer one.
    let newer = postrider_conformance::eventually("a newer count", Duration::from_secs(20), async || {
        let (_, overview) = api.get("/v1/overview").await;
        (overview["counted_at"] != first["counted_at"]).then_some(overview)
    });
    let newer = newer.await;
    assert_eq!((&newer["pending"], &newer["due"]), (&json!(1), &json!(1)), "{newer}");
    assert!(newer["oldest_due_age_ms"].is_u64());
}
