//! What is asked wrongly is refused with a code, and changes nothing.

use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn a_plan_that_cannot_be_is_refused_with_a_code() {
    let world = World::new().await;
    let plan = |webhook_url: &str, tasks: Value| json!({ "title": "t", "webhook_url": webhook_url, "tasks": tasks });
    let url = world.receiver.url();
    let a_task = json!([{ "name": "a" }]);
    for (body, status, code) in [
        (plan(&url, json!([])), 422, "tasks_invalid"),
        (plan(&url, json!([{ "name": "a" }, { "name": "a" }])), 422, "task_name_taken"),
        (plan(&url, json!([{ "name": "a", "script": { "takes": "soon" } }])), 422, "body_invalid"),
        (plan("ftp://127.0.0.1/", a_task.clone()), 422, "destination_scheme"),
        (plan("http://10.0.0.1/", a_task), 422, "destination_private_address"),
        (json!({ "title": "t" }), 422, "body_invalid"),
        // The fields in their order are not an object.
        (json!(["t", url, [{ "name": "a" }]]), 422, "body_invalid"),
        (plan(&url, json!([["a"]])), 422, "body_invalid"),
        (plan(&url, json!([{ "name": "a", "script": ["fails", "1s"] }])), 422, "body_invalid"),
    ] {
        let (answered, problem) = world.ask("POST", "/v1/plans", Some(body)).await;
        assert_eq!((answered, problem["code"].as_str()), (status, Some(code)), "{problem}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_missing() {
    let world = World::new().await;
    for (method, path, status, code) in [
        ("GET", "/v1/plans/1", 404, "plan_not_found"),
        ("GET", "/v1/plans/first", 404, "plan_not_found"),
        ("GET", "/v2", 404, "not_found"),
        ("DELETE", "/v1/plans", 405, "method_not_allowed"),
    ] {
        let (answered, problem) = world.ask(method, path, None).await;
        assert_eq!((answered, problem["code"].as_str()), (status, Some(code)), "{method} {path}: {problem}");
    }
    let (status, problem) = world.ask("POST", "/v1/plans/1/tasks:batchSkip", Some(json!({ "tasks": ["a"] }))).await;
    assert_eq!((status, problem["code"].as_str()), (404, Some("plan_not_found")));
}

#[tokio::test]
async fn a_task_that_is_under_way_is_neither_run_again_nor_skipped() {
    let world = World::new().await;
    let _replica = world.replica(&[]);
    let plan = world.create(&[("a", taking(succeeds(), "1h"))]).await;
    world.run_all(plan).await;
    world.held_by(plan, "a").await;
    for action in ["batchRun", "batchSkip"] {
        let path = format!("/v1/plans/{plan}/tasks:{action}");
        let (status, problem) = world.ask("POST", &path, Some(json!({ "tasks": ["a"] }))).await;
        assert_eq!((status, problem["code"].as_str()), (409, Some("task_state_forbids")), "{action}");
    }
    assert_eq!(standing(&world.plan(plan).await), "a running");
}

#[tokio::test]
async fn a_task_that_waits_can_be_skipped() {
    let world = World::new().await;
    let plan = world.create(&[("a", succeeds()), ("b", succeeds())]).await;
    world.run_all(plan).await;
    world.skip(plan, &["a"]).await;
    let _replica = world.replica(&[]);
    assert_eq!(standing(&world.settled(plan).await), "a skipped, b done");
    assert_eq!(world.told(plan).await, (0, 1));
}
