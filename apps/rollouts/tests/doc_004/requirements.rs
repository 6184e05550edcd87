//! The document's numbered requirements, and what its key insight says.

use postrider::{Enqueued, NewEvent, Store as _, WorkerId};
use postrider_conformance::wait::within;
use rollouts::runs::{Ending, Run};

use crate::support::*;

#[tokio::test]
async fn doc_004_r1_no_spam_however_many_tasks_fail() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let names: Vec<String> = (0..12).map(|number| format!("task {number}")).collect();
    let tasks: Vec<_> = names.iter().map(|name| (name.as_str(), fails())).collect();
    let plan = world.create(&tasks).await;
    world.run_all(plan).await;
    world.settled(plan).await;
    assert_eq!(world.told(plan).await, (1, 0));
}

#[tokio::test]
async fn doc_004_r2_each_retry_is_told_anew() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", fails()), ("b", succeeds())]).await;
    for run in 1..=3 {
        world.run_all(plan).await;
        world.settled(plan).await;
        assert_eq!(world.told(plan).await, (run, 0));
    }
}

/// Each sees itself as done. If each saw the others as unfinished, nobody would tell.
#[tokio::test]
async fn doc_004_r3_of_tasks_that_end_at_the_same_moment_one_tells_of_completion() {
    let world = World::new().await;
    let replicas = [world.another().await, world.another().await, world.another().await];
    let worker = WorkerId::random();
    for _ in 0..25 {
        let plan = world.create(&[("a", succeeds()), ("b", succeeds()), ("c", succeeds())]).await;
        world.run_all(plan).await;
        let mut runs: Vec<Run> = Vec::new();
        for replica in &replicas {
            runs.push(replica.claim(&worker, PATIENCE).await.unwrap().unwrap());
        }
        let race = Box::pin(async {
            tokio::join!(
                replicas[0].finish(&runs[0], true),
                replicas[1].finish(&runs[1], true),
                replicas[2].finish(&runs[2], true)
            )
        });
        let (a, b, c) = within("all end", PATIENCE, race).await;
        assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [Ending::Applied; 3]);
        let events = world.events(plan).await;
        assert_eq!(events.iter().map(|event| event.event_type.as_str()).collect::<Vec<_>>(), ["PIPELINE_COMPLETED"]);
    }
}

#[tokio::test]
async fn doc_004_r3_what_is_complete_stays_so_and_is_not_told_again() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", succeeds()), ("b", succeeds())]).await;
    world.run_all(plan).await;
    let settled = world.settled(plan).await;
    for (action, body) in [("batchRun", serde_json::json!({})), ("batchSkip", serde_json::json!({ "tasks": ["a"] }))] {
        let (status, answer) = world.ask("POST", &format!("/v1/plans/{plan}/tasks:{action}"), Some(body)).await;
        assert_eq!(status, 409, "{answer}");
    }
    assert_eq!(world.plan(plan).await, settled, "what was refused has reset nothing");
    assert_eq!(world.told(plan).await, (0, 1));
}

#[tokio::test]
async fn doc_004_r4_many_plans_on_three_replicas_are_each_told_once() {
    let world = World::new().await;
    let replicas: [Process; 3] = world.replicas(&[]);
    let mut plans = Vec::new();
    for number in 0..12 {
        let script = if number % 2 == 0 { fails } else { succeeds };
        plans.push(world.create(&[("a", taking(script(), "20ms")), ("b", script()), ("c", script())]).await);
    }
    for plan in &plans {
        world.run_all(*plan).await;
    }
    let mut owners = std::collections::BTreeSet::new();
    for (number, plan) in plans.into_iter().enumerate() {
        world.settled(plan).await;
        assert_eq!(world.told(plan).await, if number % 2 == 0 { (1, 0) } else { (0, 1) });
        assert!(world.arrived(plan).values().all(|(_, times)| *times == 1));
        for task in ["a", "b", "c"] {
            owners.insert(world.last_owner(plan, task).await);
        }
    }
    assert!(owners.len() > 1, "several replicas took part: {owners:?}");
    drop(replicas);
}

/// No window, no aggregation: as soon as somebody can see that a task failed, the notification is there to be sent.
#[tokio::test]
async fn doc_004_r5_the_notification_is_written_with_what_it_tells_of() {
    let world = World::new().await;
    let plan = world.create(&[("a", fails()), ("b", succeeds())]).await;
    world.run_all(plan).await;
    let run = world.rollouts.claim(&WorkerId::random(), PATIENCE).await.unwrap().unwrap();
    assert_eq!(world.rollouts.finish(&run, false).await.unwrap(), Ending::Applied);
    let stands = world.plan(plan).await;
    assert_eq!(standing(&stands), "a failed, b pending");
    assert_eq!(winner(&stands), Some("PIPELINE_FAILED"));
    let events = world.events(plan).await;
    assert_eq!(events.len(), 1);
    assert_eq!(stands["notification"]["winner"]["event_id"], events[0].id.to_string());
}

/// One slot per generation, whatever the type: neither may follow the other, and only the current generation counts.
#[tokio::test]
async fn doc_004_failure_and_completion_exclude_each_other_within_a_generation() {
    let world = World::new().await;
    let store = world.rollouts.store();
    let plan = world.create(&[("a", fails()), ("b", fails())]).await;
    let generation = world.run_all(plan).await["generation"].as_u64().unwrap();
    let run = world.rollouts.claim(&WorkerId::random(), PATIENCE).await.unwrap().unwrap();
    world.rollouts.finish(&run, false).await.unwrap();
    let told = world.events(plan).await[0].id;
    let late = |generation| {
        let event = NewEvent::new("PIPELINE_COMPLETED", format!(r#"{{"plan":{{"id":{plan}}}}}"#));
        let event = event.to(world.receiver.url()).once_in(rollouts::plan::subject(plan), generation);
        async move { store.enqueue(vec![event]).await.unwrap().remove(0) }
    };
    assert_eq!(late(generation).await, Enqueued::NotClaimed { generation, winner: Some(told) });
    world.run(plan, &["a"]).await;
    let next = generation + 1;
    assert_eq!(late(generation).await, Enqueued::NotClaimed { generation: next, winner: None }, "an older generation");
    assert_eq!(winner(&world.plan(plan).await), None, "a straggler has not taken the slot");
    assert_eq!(world.events(plan).await.len(), 1);
}

/// The next generation begins if and only if the runs that it is for are created.
#[tokio::test]
async fn doc_004_a_retry_that_is_refused_resets_nothing() {
    let world = World::new().await;
    let plan = world.create(&[("a", fails()), ("b", succeeds())]).await;
    world.run(plan, &["a"]).await;
    let run = world.rollouts.claim(&WorkerId::random(), PATIENCE).await.unwrap().unwrap();
    world.rollouts.finish(&run, false).await.unwrap();
    let before = world.plan(plan).await;
    for (tasks, status, code) in [
        (vec!["a", "z"], 422, "task_unknown"),
        (vec![], 409, "no_tasks"),
        (vec!["a", "b", "a", "?"], 422, "task_unknown"),
    ] {
        let body = serde_json::json!({ "tasks": tasks });
        let (answered, problem) = world.ask("POST", &format!("/v1/plans/{plan}/tasks:batchRun"), Some(body)).await;
        assert_eq!((answered, problem["code"].as_str()), (status, Some(code)));
    }
    assert_eq!(world.plan(plan).await, before);
}

/// The failure that is left was told; a completion could not be, were the slot still taken.
#[tokio::test]
async fn doc_004_only_the_skip_that_resolves_the_last_failure_resets() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", fails()), ("b", fails()), ("c", succeeds())]).await;
    world.run(plan, &["a", "b"]).await;
    let failed = world.settled(plan).await;
    let first = world.skip(plan, &["a"]).await;
    assert_eq!((&first["generation"], winner(&first)), (&failed["generation"], Some("PIPELINE_FAILED")));
    let second = world.skip(plan, &["b"]).await;
    assert_eq!((second["generation"].as_u64(), winner(&second)), (failed["generation"].as_u64().map(|n| n + 1), None));
    assert_eq!(world.told(plan).await, (1, 0), "c was not run yet");
    world.run(plan, &["c"]).await;
    world.settled(plan).await;
    assert_eq!(world.told(plan).await, (1, 1));
}
