//! Once-only claims.

use postrider::Scope;
use serde_json::{Value, json};

use crate::stage::{Ask, Stage, text};

async fn claim(stage: &Stage, subject: &str) -> (u16, Value) {
    let event = json!({"type": "plan.due", "payload": {}, "once": {"subject": subject}});
    let answer = stage.ask("POST", "/v1/events", Some(event)).await;
    (answer.status, answer.body)
}

#[tokio::test]
async fn a_subject_is_shown_with_its_winner_and_reset_to_its_next_generation() {
    let stage = Stage::quiet().await;
    let (status, event) = claim(&stage, "plan/123").await;
    assert_eq!((status, &event["claimed"]), (202, &json!(true)), "{event}");
    let shown = stage.expect(200, "GET", "/v1/once/plan/123", None).await;
    assert_eq!(
        (&shown["subject"], &shown["generation"], &shown["tenant"]),
        (&json!("plan/123"), &json!(1), &json!("default"))
    );
    assert_eq!((&shown["winner"]["event_id"], &shown["winner"]["event_type"]), (&event["id"], &json!("plan.due")));
    assert!(shown["winner"]["claimed_at"].is_string());
    assert_eq!(stage.expect(200, "GET", "/v1/once/plan%2F123", None).await, shown, "escaped or not");

    let reset = stage.expect(200, "POST", "/v1/once/plan/123/reset", None).await;
    assert_eq!(reset, json!({"tenant": "default", "subject": "plan/123", "generation": 2, "winner": null}));
    assert_eq!(stage.expect(200, "GET", "/v1/once/plan/123", None).await, reset);
    let (status, second) = claim(&stage, "plan/123").await;
    assert_eq!((status, &second["claimed"]), (202, &json!(true)), "in each generation one wins");
    let reset = stage.expect(200, "POST", "/v1/once/plan%2F123/reset", None).await;
    assert_eq!(reset["generation"], 3);
    let audit = stage.expect(200, "GET", "/v1/audit?limit=1", None).await;
    assert_eq!(audit["data"][0]["action"], "once.reset", "{audit}");
    assert_eq!(audit["data"][0]["subject"], "plan/123");
}

#[tokio::test]
async fn subjects_may_look_like_paths() {
    let stage = Stage::quiet().await;
    for subject in ["reset", "a/reset", "a b", "100%", "a?b"] {
        let (status, event) = claim(&stage, subject).await;
        assert_eq!(status, 202, "{event}");
        let escaped = subject.replace('%', "%25").replace('/', "%2F").replace(' ', "%20").replace('?', "%3F");
        let shown = stage.expect(200, "GET", &format!("/v1/once/{escaped}"), None).await;
        assert_eq!((text(&shown["subject"]), &shown["winner"]["event_id"]), (subject, &event["id"]));
        let reset = stage.expect(200, "POST", &format!("/v1/once/{escaped}/reset"), None).await;
        assert_eq!((text(&reset["subject"]), &reset["generation"]), (subject, &json!(2)));
    }
    assert_eq!(stage.expect(200, "GET", "/v1/once/a/reset", None).await["generation"], 2);
}

#[tokio::test]
async fn a_subject_that_nobody_knows_is_not_found_and_can_be_reset_all_the_same() {
    let stage = Stage::quiet().await;
    let answer = stage.ask("GET", "/v1/once/plan/9", None).await;
    assert_eq!(answer.problem(), (404, "subject_not_found"));
    assert_eq!(stage.expect(200, "POST", "/v1/once/plan/9/reset", None).await["winner"], Value::Null);
    assert_eq!(stage.ask("GET", "/v1/once/plan/9", None).await.status, 200);
}

#[tokio::test]
async fn what_is_no_subject_is_refused() {
    let stage = Stage::quiet().await;
    for (path, status, code) in [
        ("/v1/once/%00", 422, "subject_invalid"),
        ("/v1/once/a%0Ab", 422, "subject_invalid"),
        ("/v1/once/%FF", 400, "path_invalid"),
        ("/v1/once/%20a", 422, "subject_invalid"),
        ("/v1/once/a?b=c", 400, "query_invalid"),
        ("/v1/once/", 404, "route_unknown"),
    ] {
        let answer = stage.ask("GET", path, None).await;
        assert_eq!(answer.problem(), (status, code), "{path}: {}", answer.text);
    }
    let long = format!("/v1/once/{}", "x".repeat(256));
    assert_eq!(stage.ask("GET", &long, None).await.problem(), (422, "subject_invalid"));
    let answer = stage.ask("POST", "/v1/once/plan", None).await;
    assert_eq!(answer.problem(), (405, "method_not_allowed"));
    assert_eq!(answer.headers["allow"], "GET,HEAD");
    let answer = stage.send(Ask::new("GET", "/v1/once/plan").key(&stage.admin).tenant("*")).await;
    assert_eq!(answer.problem(), (422, "tenant_ambiguous"));
    let reader = stage.key(Some("default"), Scope::Read).await;
    let answer = stage.ask_with(&reader, "POST", "/v1/once/plan/reset", None).await;
    assert_eq!(answer.problem(), (403, "scope_insufficient"));
}

#[tokio::test]
async fn subjects_are_listed_page_by_page_and_only_ones_own() {
    let stage = Stage::quiet().await;
    assert_eq!(stage.expect(200, "GET", "/v1/once", None).await, json!({"data": [], "next_cursor": null}));
    for subject in ["plan/1", "plan/2", "order/7"] {
        assert_eq!(claim(&stage, subject).await.0, 202);
    }
    let acme = stage.key(Some("acme"), Scope::Write).await;
    let theirs = json!({"type": "plan.due", "payload": {}, "once": {"subject": "plan/9"}});
    assert_eq!(stage.ask_with(&acme, "POST", "/v1/events", Some(theirs)).await.status, 202);
    stage.expect(200, "POST", "/v1/once/plan%2F2/reset", None).await;

    let first = stage.expect(200, "GET", "/v1/once?prefix=plan/&limit=1", None).await;
    assert_eq!(first["data"].as_array().unwrap().len(), 1, "{first}");
    assert_eq!(first["data"][0], stage.expect(200, "GET", "/v1/once/plan/1", None).await, "as it is shown alone");
    let path = format!("/v1/once?prefix=plan/&limit=1&cursor={}", text(&first["next_cursor"]));
    let second = stage.expect(200, "GET", &path, None).await;
    assert_eq!(second["data"], json!([{"tenant": "default", "subject": "plan/2", "generation": 2, "winner": null}]));
    let of = async |ask: Ask| {
        let listed = stage.send(ask).await.body;
        listed["data"].as_array().unwrap().iter().map(|one| text(&one["subject"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(Ask::new("GET", "/v1/once").key(&acme)).await, ["plan/9"]);
    assert_eq!(of(Ask::new("GET", "/v1/once").key(&stage.admin)).await, ["order/7", "plan/1", "plan/2"]);
    let all = of(Ask::new("GET", "/v1/once").key(&stage.admin).tenant("*")).await;
    assert_eq!(all, ["plan/9", "order/7", "plan/1", "plan/2"], "by tenant, then by subject");
    for (path, code) in [
        ("/v1/once?prefix=", "prefix_invalid"),
        ("/v1/once?prefix=%0A", "prefix_invalid"),
        ("/v1/once?limit=0", "limit_invalid"),
        ("/v1/once?cursor=nonsense", "cursor_invalid"),
    ] {
        assert_eq!(stage.ask("GET", path, None).await.problem(), (422, code), "{path}");
    }
    assert_eq!(stage.ask("GET", "/v1/once?subject=x", None).await.problem(), (400, "query_invalid"));
}
