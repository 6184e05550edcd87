//! Replicas that are killed, and one that wakes up too late.

use std::cell::Cell;
use std::time::Duration;

use postrider::{DeliveryStatus, Store as _, WorkerId};
use postrider_conformance::receiver::{Answer, Gate};
use postrider_conformance::wait::eventually;
use rollouts::runs::Ending;

use crate::matrix::Random;
use crate::support::*;

/// Three replicas race for tasks that all fail. Nobody sends yet, so that the one who won the claim dies exactly between
/// claim and send.
#[tokio::test]
async fn doc_004_a_replica_killed_between_claim_and_send_leaves_its_notification_to_others() {
    let world = World::new().await;
    let mut replicas = Vec::from(world.replicas::<3>(&["--no-dispatch"]));
    let plan = world.create(&[("a", fails()), ("b", fails()), ("c", fails())]).await;
    world.run_all(plan).await;
    world.settled(plan).await;
    let winner = eventually("a replica says that it won the claim", PATIENCE, async || {
        replicas.iter().position(|replica| replica.log().contains("PIPELINE_FAILED will be told"))
    })
    .await;
    replicas.remove(winner).kill();
    let events = world.events(plan).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].deliveries[0].status, DeliveryStatus::Pending);
    assert_eq!(world.receiver.request_count(), 0, "nothing was sent before the crash");
    replicas.push(world.replica(&[]));
    assert_eq!(world.told(plan).await, (1, 0));
    assert_eq!(world.arrived(plan)[&events[0].id.to_string()].1, 1);
}

#[tokio::test]
async fn doc_004_a_replica_killed_while_it_sends_is_replaced_under_the_same_id() {
    let never = Gate::new();
    let world = World::answering(move |_, number| match number {
        1 => Answer::status(200).after(&never),
        _ => Answer::status(200),
    })
    .await;
    let mut replicas = Vec::from(world.replicas::<3>(&[]));
    let plan = world.create(&[("a", succeeds()), ("b", succeeds())]).await;
    world.run_all(plan).await;
    world.receiver.wait_for(1, PATIENCE).await;
    let delivery = world.events(plan).await[0].deliveries[0].id;
    let sender = eventually("a replica holds the notification", PATIENCE, async || {
        world.rollouts.store().delivery(delivery).await.unwrap().unwrap().delivery.lease_owner
    })
    .await;
    take(&mut replicas, &sender).await.kill();
    assert_eq!(world.told(plan).await, (0, 1));
    let arrived = world.arrived(plan);
    assert!(arrived.values().all(|(_, times)| *times == 2), "cut off once, sent again: {arrived:?}");
}

#[tokio::test]
async fn doc_004_a_task_of_a_replica_that_is_killed_is_run_by_another_and_told_once() {
    let world = World::new().await;
    let mut replicas = Vec::from(world.replicas::<3>(&[]));
    let plan = world.create(&[("a", taking(fails(), "4s")), ("b", succeeds())]).await;
    world.run_all(plan).await;
    let holder = world.held_by(plan, "a").await;
    take(&mut replicas, &holder).await.kill();
    assert_eq!(standing(&world.settled(plan).await), "a failed, b done");
    assert_ne!(world.last_owner(plan, "a").await, holder);
    assert_eq!(world.told(plan).await, (1, 0));
}

/// A replica is stopped while it holds a run, sleeps through the failure and the retry of that task, and wakes in the
/// middle of the next generation, in which everything is about to end well.
#[tokio::test]
async fn doc_004_a_straggler_does_not_take_the_next_runs_slot() {
    let world = World::new().await;
    let mut replicas = Vec::from(world.replicas::<3>(&[]));
    let plan = world.create(&[("a", taking(fails_times(1), "4s"))]).await;
    world.run_all(plan).await;
    let holder = world.held_by(plan, "a").await;
    let straggler = take(&mut replicas, &holder).await;
    straggler.signal("STOP");
    world.stands(plan, "a failed").await;
    assert_eq!(world.told(plan).await, (1, 0));
    let retried = world.run_all(plan).await;
    assert_ne!(world.held_by(plan, "a").await, holder);
    straggler.signal("CONT");
    straggler.logged_after("lease lost: nothing is changed or told").await;
    world.stands(plan, "a done").await;
    assert_eq!(world.told(plan).await, (1, 1));
    let stands = world.plan(plan).await;
    assert_eq!((&stands["generation"], winner(&stands)), (&retried["generation"], Some("PIPELINE_COMPLETED")));
}

/// The same, to the letter of the law: a run that was taken over or whose lease has lapsed cannot be ended.
#[tokio::test]
async fn doc_004_a_run_can_only_be_ended_by_whoever_holds_it() {
    let world = World::new().await;
    let plan = world.create(&[("a", fails_times(1))]).await;
    world.run_all(plan).await;
    let (worker, moment) = (WorkerId::random(), Duration::from_millis(1));
    let first = world.rollouts.claim(&worker, moment).await.unwrap().unwrap();
    // By the same replica, whose name is therefore no proof.
    let again =
        eventually("the lease has lapsed", PATIENCE, async || world.rollouts.claim(&worker, moment).await.unwrap())
            .await;
    assert_eq!(world.rollouts.finish(&first, false).await.unwrap(), Ending::LeaseLost, "taken over");
    let held =
        eventually("the lease has lapsed", PATIENCE, async || world.rollouts.claim(&worker, PATIENCE).await.unwrap())
            .await;
    for stale in [&first, &again] {
        assert!(!world.rollouts.renew(stale, PATIENCE).await.unwrap());
        assert_eq!(world.rollouts.finish(stale, true).await.unwrap(), Ending::LeaseLost);
    }
    assert!(world.events(plan).await.is_empty());
    assert!(world.rollouts.renew(&held, PATIENCE).await.unwrap());
    assert_eq!(world.rollouts.finish(&held, false).await.unwrap(), Ending::Applied);
    assert_eq!(world.rollouts.finish(&held, false).await.unwrap(), Ending::LeaseLost, "ended before");
    assert_eq!(world.events(plan).await.len(), 1);
}

/// Replicas are killed and replaced all the while; every plan is still told as the matrix says.
#[tokio::test]
async fn doc_004_every_plan_is_told_as_it_should_be_while_replicas_are_killed() {
    let world = World::new().await;
    let over = Cell::new(false);
    let course = async {
        let mut plans = Vec::new();
        for _ in 0..6 {
            let failing = [("a", fails_times(1)), ("b", taking(succeeds(), "20ms")), ("c", fails_times(2))];
            let succeeding = [("a", succeeds()), ("b", taking(succeeds(), "40ms")), ("c", succeeds())];
            plans.push((world.create(&failing).await, (2, 1)));
            plans.push((world.create(&succeeding).await, (0, 1)));
        }
        for run in 0..3 {
            let unfinished = || plans.iter().filter(|(_, expected)| run <= expected.0).map(|(plan, _)| *plan);
            for plan in unfinished() {
                world.run_all(plan).await;
            }
            for plan in unfinished() {
                world.settled(plan).await;
            }
        }
        for (plan, expected) in plans {
            assert_eq!(world.told(plan).await, expected, "plan {plan}");
        }
        over.set(true);
    };
    let ((), kills) = tokio::join!(course, kill_replicas(&world, &over));
    assert!(kills > 1, "{kills} replicas were killed");
}

/// Kills one of three replicas whenever something was told, and puts another in its place.
async fn kill_replicas(world: &World, over: &Cell<bool>) -> usize {
    let mut replicas = Vec::from(world.replicas::<3>(&[]));
    let (mut random, mut kills) = (Random(0x2545_f491), 0);
    while !over.get() {
        let before = world.receiver.request_count();
        replicas.last().expect("there are three").worker().await;
        eventually("something is told", PATIENCE, async || {
            (over.get() || world.receiver.request_count() > before).then_some(())
        })
        .await;
        replicas.remove(random.between(0, 2)).kill();
        replicas.push(world.replica(&[]));
        kills += 1;
    }
    kills
}

#[tokio::test]
async fn a_replica_that_is_told_to_stop_gives_back_what_it_holds() {
    let world = World::new().await;
    let lease = ["--lease", "10m"];
    let mut first = world.replica(&lease);
    let plan = world.create(&[("a", taking(succeeds(), "3s"))]).await;
    world.run_all(plan).await;
    world.held_by(plan, "a").await;
    first.signal("TERM");
    assert!(first.wait().success());
    world.stands(plan, "a pending").await;
    let _second = world.replica(&lease);
    world.stands(plan, "a done").await;
    assert_eq!(world.told(plan).await, (0, 1));
}
