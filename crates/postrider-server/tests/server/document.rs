//! The API's description: complete, and as it was when somebody last looked at it.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use crate::support::Api;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

fn document() -> Value {
    serde_json::to_value(postrider_server::openapi()).unwrap()
}

#[test]
fn the_document_is_the_golden_one() {
    let mut text = serde_json::to_string_pretty(&postrider_server::openapi()).unwrap();
    text.push('\n');
    if std::env::var_os("POSTRIDER_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(
        golden == text,
        "openapi.json differs from the code; if that is meant, run the test with POSTRIDER_BLESS=1"
    );
}

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((format!("{} {path}", method.to_uppercase()), operation));
        }
    }
    operations
}

#[test]
fn every_operation_is_described() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        assert!(operation["summary"].is_string(), "{name}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}: its id is not its own");
        let tag = &operation["tags"][0];
        assert!(document["tags"].as_array().unwrap().iter().any(|known| known["name"] == *tag), "{name}: {tag}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{name}");
        for (status, response) in responses {
            let described = response["$ref"].is_string() || !response["description"].as_str().unwrap().is_empty();
            assert!(described, "{name} {status}");
            let problem = response["$ref"].is_string() || response["content"]["application/problem+json"].is_object();
            assert_eq!(problem, status.starts_with(['4', '5']), "{name} {status}");
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(parameter["description"].is_string(), "{name} {}", parameter["name"]);
        }
        if name.contains(" /v1/") {
            for status in ["400", "401", "403", "422", "500", "503"] {
                assert!(responses.contains_key(status), "{name} {status}");
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn check(value: &Value, document: &Value) {
        if let Some(reference) = value["$ref"].as_str() {
            assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
        }
        match value {
            Value::Array(values) => values.iter().for_each(|value| check(value, document)),
            Value::Object(values) => values.values().for_each(|value| check(value, document)),
            _ => {}
        }
    }
    let document = document();
    check(&document, &document);
}

#[test]
fn the_whole_contract_is_there() {
    let document = document();
    let described: BTreeSet<String> = operations(&document).into_iter().map(|(name, _)| name).collect();
    for wanted in [
        "POST /v1/events",
        "POST /v1/events/batch",
        "GET /v1/events",
        "GET /v1/events/{id}",
        "POST /v1/endpoints",
        "GET /v1/endpoints",
        "GET /v1/endpoints/{id}",
        "PATCH /v1/endpoints/{id}",
        "DELETE /v1/endpoints/{id}",
        "POST /v1/endpoints/{id}/pause",
        "POST /v1/endpoints/{id}/resume",
        "POST /v1/endpoints/{id}/rotate-secret",
        "POST /v1/endpoints/{id}/test",
        "GET /v1/deliveries",
        "GET /v1/deliveries/{id}",
        "POST /v1/deliveries/{id}/retry",
        "POST /v1/deliveries/{id}/cancel",
        "POST /v1/deliveries/retry",
        "GET /v1/deliveries/{id}/why",
        "GET /v1/once/{subject}",
        "POST /v1/once/{subject}/reset",
        "GET /v1/overview",
        "GET /v1/stream",
        "POST /v1/keys",
        "GET /v1/keys",
        "DELETE /v1/keys/{id}",
        "GET /v1/audit",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
    ] {
        assert!(described.contains(wanted), "{wanted} is missing from {described:#?}");
    }
}

#[tokio::test]
async fn it_is_served_to_programs_and_to_people() {
    let api = Api::start().await;
    let response = api.bare(Method::GET, "/openapi.json").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.json::<Value>().await.unwrap(), document());

    let response = api.bare(Method::GET, "/docs").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
    let page = response.text().await.unwrap();
    for (name, operation) in operations(&document()) {
        let id = operation["operationId"].as_str().unwrap();
        assert!(
            page.contains(&format!("<article id=\"{id}\">")) && page.contains(&format!("href=\"#{id}\"")),
            "{name}"
        );
    }
    for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        match link.strip_prefix('#') {
            Some(anchor) => assert!(page.contains(&format!("id=\"{anchor}\"")), "{link} leads nowhere"),
            None => assert!(link.starts_with('/'), "{link} leads elsewhere"),
        }
    }
    assert!(!page.contains("<script") && !page.contains("style=\""), "the policy would not allow it");
    let style = api.bare(Method::GET, "/docs/style.css").send().await.unwrap();
    assert_eq!(style.headers()["content-type"], "text/css; charset=utf-8");
    let root = api.bare(Method::GET, "/").send().await.unwrap();
    assert_eq!((root.status().as_u16(), root.url().path()), (200, "/sign-in"), "the dashboard asks who is there");
}
