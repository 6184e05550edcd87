//! API keys: made, listed, revoked.

use postrider::Scope;
use serde_json::{Value, json};

use crate::stage::{Ask, Stage, text};

async fn made(stage: &Stage, body: Value) -> Value {
    stage.expect(201, "POST", "/v1/keys", Some(body)).await
}

#[tokio::test]
async fn a_key_is_shown_once_opens_what_its_scope_allows_and_nothing_when_revoked() {
    let stage = Stage::quiet().await;
    let created = made(&stage, json!({"name": "billing service", "tenant": "acme", "scope": "write"})).await;
    let key = text(&created["key"]).to_owned();
    assert!(key.starts_with("prk_"), "{created}");
    assert_eq!((&created["name"], &created["tenant"]), (&json!("billing service"), &json!("acme")));
    assert_eq!((&created["scope"], &created["revoked_at"]), (&json!("write"), &Value::Null));
    let endpoint = json!({"url": "https://hooks.example.com/"});
    let answer = stage.ask_with(&key, "POST", "/v1/endpoints", Some(endpoint)).await;
    assert_eq!((answer.status, &answer.body["tenant"]), (201, &json!("acme")), "{}", answer.text);
    let answer = stage.ask_with(&key, "GET", "/v1/keys", None).await;
    assert_eq!(answer.problem(), (403, "scope_insufficient"));

    let listed = stage.ask("GET", "/v1/keys", None).await;
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 2, "its own and the new one: {}", listed.text);
    let mut shown = created.clone();
    shown.as_object_mut().unwrap().remove("key");
    assert_eq!(listed.body["data"][0], shown);
    assert!(!listed.text.contains(&key[4..]) && !listed.text.contains("digest"));

    let path = format!("/v1/keys/{}", text(&created["id"]));
    assert_eq!(stage.ask("DELETE", &path, None).await.status, 204);
    let answer = stage.ask_with(&key, "GET", "/v1/endpoints", None).await;
    assert_eq!(answer.problem(), (401, "key_invalid"));
    assert_eq!(stage.ask("DELETE", &path, None).await.problem(), (404, "key_not_found"));
    let listed = stage.expect(200, "GET", "/v1/keys", None).await;
    assert!(listed["data"][0]["revoked_at"].is_string(), "{listed}");
    let audit = stage.send(Ask::new("GET", "/v1/audit").key(&stage.admin).tenant("acme")).await;
    let actions: Vec<_> = audit.body["data"].as_array().unwrap().iter().map(|entry| text(&entry["action"])).collect();
    assert_eq!(actions, ["key.revoke", "endpoint.create", "key.create"], "{}", audit.text);
    assert!(!audit.text.contains(&key[4..]));
}

#[tokio::test]
async fn the_tenant_is_the_callers_unless_it_is_named() {
    let stage = Stage::quiet().await;
    let key = made(&stage, json!({"name": "a", "scope": "read"})).await;
    assert_eq!(key["tenant"], "default");
    let key = made(&stage, json!({"name": "b", "scope": "admin", "tenant": null})).await;
    assert_eq!(key["tenant"], Value::Null);
    let body = json!({"name": "c", "scope": "read"});
    let answer = stage.send(Ask::new("POST", "/v1/keys").key(&stage.admin).tenant("acme").json(&body)).await;
    assert_eq!(answer.body["tenant"], "acme");
    let answer = stage.send(Ask::new("GET", "/v1/keys").key(&stage.admin).tenant("acme")).await;
    assert_eq!(answer.body["data"].as_array().unwrap().len(), 1, "{}", answer.text);
    let answer = stage.send(Ask::new("POST", "/v1/keys").key(&stage.admin).tenant("*").json(&body)).await;
    assert_eq!(answer.problem(), (422, "tenant_ambiguous"));
}

#[tokio::test]
async fn an_administrator_of_one_tenant_stays_within_it() {
    let stage = Stage::quiet().await;
    let admin = stage.key(Some("acme"), Scope::Admin).await;
    let globex = made(&stage, json!({"name": "globex", "scope": "read", "tenant": "globex"})).await;
    let everybodys = made(&stage, json!({"name": "everybody's", "scope": "read", "tenant": null})).await;
    for tenant in [json!(null), json!("globex")] {
        let body = json!({"name": "x", "scope": "read", "tenant": tenant});
        let answer = stage.ask_with(&admin, "POST", "/v1/keys", Some(body)).await;
        assert_eq!(answer.problem(), (403, "tenant_forbidden"), "{}", answer.text);
    }
    for key in [&globex, &everybodys] {
        let answer = stage.ask_with(&admin, "DELETE", &format!("/v1/keys/{}", text(&key["id"])), None).await;
        assert_eq!(answer.problem(), (404, "key_not_found"), "{}", answer.text);
    }
    for body in [json!({"name": "x", "scope": "admin"}), json!({"name": "y", "scope": "read", "tenant": "acme"})] {
        let answer = stage.ask_with(&admin, "POST", "/v1/keys", Some(body)).await;
        assert_eq!((answer.status, &answer.body["tenant"]), (201, &json!("acme")), "{}", answer.text);
    }
    let listed = stage.ask_with(&admin, "GET", "/v1/keys", None).await.body;
    let tenants: Vec<_> = listed["data"].as_array().unwrap().iter().map(|key| &key["tenant"]).collect();
    assert_eq!(tenants, ["acme", "acme", "acme"]);
}

#[tokio::test]
async fn a_key_cannot_revoke_itself_nor_be_made_of_nonsense() {
    let stage = Stage::quiet().await;
    let listed = stage.expect(200, "GET", "/v1/keys", None).await;
    let own = format!("/v1/keys/{}", text(&listed["data"][0]["id"]));
    assert_eq!(stage.ask("DELETE", &own, None).await.problem(), (409, "key_in_use"));
    assert_eq!(stage.ask("GET", "/v1/keys", None).await.status, 200);
    for (body, code) in [
        (json!({"name": "", "scope": "read"}), "name_invalid"),
        (json!({"name": "a\nb", "scope": "read"}), "name_invalid"),
        (json!({"name": "a", "scope": "root"}), "scope_invalid"),
        (json!({"name": "a"}), "field_missing"),
        (json!({"name": "a", "scope": "read", "tenant": "*"}), "tenant_invalid"),
        (json!({"name": "a", "scope": "read", "tenant": ""}), "tenant_invalid"),
        (json!({"name": "a", "scope": "read", "key": "prk_mine"}), "field_unknown"),
    ] {
        let answer = stage.ask("POST", "/v1/keys", Some(body.clone())).await;
        assert_eq!(answer.problem(), (422, code), "{body}: {}", answer.text);
    }
    assert_eq!(stage.ask("DELETE", "/v1/keys/x", None).await.problem(), (400, "id_invalid"));
    let reader = stage.key(None, Scope::Write).await;
    for (method, path) in [("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", own.as_str()), ("GET", "/v1/audit")] {
        let answer = stage.ask_with(&reader, method, path, None).await;
        assert_eq!(answer.problem(), (403, "scope_insufficient"), "{method} {path}");
    }
}

#[tokio::test]
async fn the_audit_trail_is_in_pages() {
    let stage = Stage::quiet().await;
    for n in 0..5 {
        stage.endpoint(json!({"url": format!("https://hooks.example.com/{n}")})).await;
    }
    let first = stage.expect(200, "GET", "/v1/audit?limit=3", None).await;
    let next = format!("/v1/audit?limit=3&cursor={}", text(&first["next_cursor"]));
    let second = stage.expect(200, "GET", &next, None).await;
    let ids: Vec<_> = [&first, &second].into_iter().flat_map(|page| page["data"].as_array().unwrap()).collect();
    assert_eq!(ids.len(), 5);
    assert!(ids.windows(2).all(|pair| text(&pair[0]["at"]) >= text(&pair[1]["at"]) && pair[0]["id"] != pair[1]["id"]));
    assert_eq!(second["next_cursor"], Value::Null);
}
