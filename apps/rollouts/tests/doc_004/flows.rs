//! The document's example flows.

use postrider_conformance::wait::within;

use crate::support::*;

#[tokio::test]
async fn doc_004_scenario_1_two_tasks_fail_and_one_webhook_is_sent() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", fails()), ("b", fails())]).await;
    world.run_all(plan).await;
    let settled = world.settled(plan).await;
    assert_eq!(standing(&settled), "a failed, b failed");
    assert_eq!(world.told(plan).await, (1, 0));
    assert_eq!(winner(&settled), Some("PIPELINE_FAILED"), "the claim says what was told");
}

#[tokio::test]
async fn doc_004_scenario_2_a_retry_that_fails_is_told_again() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", fails_times(1)), ("b", fails())]).await;
    world.run_all(plan).await;
    let first = world.settled(plan).await;
    let retried = world.run(plan, &["a", "b"]).await;
    assert_eq!(winner(&retried), None, "the slot is free again");
    assert_eq!(retried["generation"].as_u64(), first["generation"].as_u64().map(|generation| generation + 1));
    let settled = world.settled(plan).await;
    assert_eq!(standing(&settled), "a done, b failed");
    assert!(tasks(&settled).iter().all(|task| task["attempt"] == 1));
    assert_eq!(world.told(plan).await, (2, 0));
    assert_eq!(winner(&settled), Some("PIPELINE_FAILED"));
    let last = world.receiver.requests().pop().unwrap();
    let expected = serde_json::json!([{ "name": "b", "status": "failed", "attempt": 1 }]);
    assert_eq!(body(&last)["failed_tasks"], expected);
}

#[tokio::test]
async fn doc_004_scenario_3_the_retry_that_succeeds_is_told_as_completion() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let plan = world.create(&[("a", fails_times(1)), ("b", fails_times(2))]).await;
    for wanted in ["a failed, b failed", "a done, b failed", "a done, b done"] {
        world.run_all(plan).await;
        world.stands(plan, wanted).await;
    }
    assert_eq!(world.told(plan).await, (2, 1));
    assert_eq!(winner(&world.plan(plan).await), Some("PIPELINE_COMPLETED"));
}

/// Many times over, two replicas end runs of one plan at the same moment.
#[tokio::test]
async fn doc_004_scenario_4_of_replicas_that_see_failures_at_the_same_moment_one_tells() {
    let world = World::new().await;
    let replicas = [world.another().await, world.another().await];
    let (worker, lease) = (postrider::WorkerId::random(), PATIENCE);
    for _ in 0..25 {
        let plan = world.create(&[("a", fails()), ("b", fails())]).await;
        world.run_all(plan).await;
        let [a, b] = [replicas[0].claim(&worker, lease).await, replicas[1].claim(&worker, lease).await];
        let [a, b] = [a.unwrap().unwrap(), b.unwrap().unwrap()];
        let race = Box::pin(async { tokio::join!(replicas[0].finish(&a, false), replicas[1].finish(&b, false)) });
        let (first, second) = within("both end", PATIENCE, race).await;
        assert_eq!([first.unwrap(), second.unwrap()], [rollouts::runs::Ending::Applied; 2]);
        assert_eq!(world.events(plan).await.len(), 1);
    }
}

/// A retry does not wait for what still runs; how that ends belongs to the new generation.
#[tokio::test]
async fn doc_004_what_still_runs_when_others_are_retried_is_part_of_the_new_run() {
    let world = World::new().await;
    let _replicas: [Process; 3] = world.replicas(&[]);
    let slow = taking(fails(), "5s");
    let failing = world.create(&[("quick", fails_times(1)), ("slow", slow)]).await;
    let completing = world.create(&[("quick", fails_times(1)), ("slow", taking(succeeds(), "5s"))]).await;
    for plan in [failing, completing] {
        world.run_all(plan).await;
    }
    for plan in [failing, completing] {
        world.stands(plan, "quick failed, slow running").await;
        world.run(plan, &["quick"]).await;
    }
    assert_eq!(standing(&world.settled(failing).await), "quick done, slow failed");
    assert_eq!(world.told(failing).await, (2, 0), "the slow one's failure is news");
    assert_eq!(standing(&world.settled(completing).await), "quick done, slow done");
    assert_eq!(world.told(completing).await, (1, 1), "whichever was last, completion is told");
}
