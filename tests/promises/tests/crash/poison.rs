//! P14: a delivery that crashes whoever sends it is quarantined, and nobody else is.

use std::time::Duration;

use postrider::DeliveryId;
use postrider_promises::checker::{Kind, Terms, judge};
use postrider_promises::fleet::{Arena, Role, Start, now, terms};
use postrider_promises::inbox::{Inbox, Reply};
use postrider_promises::load::{POISON, Way, number_of};

use crate::{enqueue_these, must_hold};

/// Fewer than usual, so that the test need not wait for so many leases.
const MAX_ABANDONED: u32 = 6;

const OTHERS: usize = 40;

fn patient() -> Terms {
    Terms { lease: Duration::from_secs(1), max_abandoned: MAX_ABANDONED, ..terms() }
}

/// The others wait in the same lane, before and after it, so that they are claimed together with it.
async fn one_among_others(arena: Arena) {
    let mut numbers: Vec<u64> = (0..OTHERS).map(|_| arena.load.begin(Way::Request)).collect();
    numbers.insert(OTHERS / 3, arena.load.begin_poison());
    enqueue_these(&arena, numbers).await;

    // As an init system would, somebody starts it again whenever it has crashed.
    let mut crashes = 0;
    let survivor = loop {
        let mut member = arena.start(Role::Dispatch, Start::ending_at("marked_payload=abort"));
        let settled = loop {
            if member.running.has_ended().is_some() {
                break false;
            }
            if arena.source.unsettled().await == Ok(0) {
                break true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        if settled {
            break member;
        }
        let worker = member.worker.clone();
        let (code, text) = member.running.ended().await;
        assert!(code.is_none() && arena.ended_at_a_place(&text), "{worker} ended with {code:?}: {text}");
        arena.record(now(), Some(&worker), Kind::Failpoint);
        crashes += 1;
        assert!(crashes <= MAX_ABANDONED, "it is not quarantined after {crashes} crashes");
    };
    arena.terminate(survivor).await;

    let evidence = arena.evidence().await;
    let verdict = judge(&evidence);
    must_hold(&verdict);
    let figures = &verdict.figures;
    assert_eq!(crashes, MAX_ABANDONED, "it crashed as often as it was tried");
    assert_eq!((figures.delivered, figures.dead, figures.quarantined), (OTHERS, 1, 1), "{figures:?}");
    let event = evidence.rows.events.iter().find(|event| number_of(event.payload.as_bytes()) >= Some(POISON)).unwrap();
    let delivery = evidence.rows.deliveries.iter().find(|delivery| delivery.event_id == event.id).unwrap();
    assert_eq!((&*delivery.state.status, delivery.state.attempt_count), ("dead", 0), "no attempt is counted");
    assert_eq!(delivery.state.abandoned_count, MAX_ABANDONED);
    operator_sees_why(&arena, DeliveryId::from_uuid(delivery.id));
}

fn operator_sees_why(arena: &Arena, id: DeliveryId) {
    let id = id.to_string();
    let why = arena.workplace().json(["why", &id]);
    let summary = why["summary"].as_str().unwrap();
    assert!(summary.contains("it may be this very delivery that makes them crash"), "{summary}");
    let dead = arena.workplace().json(["dead", "list"]);
    assert_eq!(dead["data"][0]["id"], id.as_str(), "{dead}");
    let detail = dead["data"][0]["error_detail"].as_str().unwrap();
    assert!(detail.starts_with("abandoned: "), "{detail}");
}

#[tokio::test]
async fn a_delivery_that_crashes_its_worker_is_quarantined_and_the_others_arrive_on_postgres() {
    let arena = Arena::on_postgres(Inbox::open(|_, _| Reply::status(200)).await, patient()).await;
    one_among_others(arena).await;
}

#[tokio::test]
async fn a_delivery_that_crashes_its_worker_is_quarantined_and_the_others_arrive_on_sqlite() {
    let arena = Arena::on_sqlite(Inbox::open(|_, _| Reply::status(200)).await, patient()).await;
    one_among_others(arena).await;
}
