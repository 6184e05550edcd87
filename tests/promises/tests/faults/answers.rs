//! Answers of the database get lost: it has done what it was told, and whoever told it does not know.
//!
//! Statements are told apart by what their files open with.

use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::eventually;
use postrider_promises::process::PATIENCE;

use crate::books::{arrivals, balance};
use crate::stage::{LEASE, Wired, dispatch, holding, measured, serve, workplace};

const COMMIT: &str = "commit";
const ENQUEUE: &str = "-- Writes one event without an idempotency key";
const CLAIM: &str = "-- Takes deliveries from several lanes in turn";
const SETTLE: &str = "-- Consumes leases with the results of their attempts";
const RENEW: &str = "-- All the leases of one worker in one statement";

/// P5: an enqueue whose answer is lost is answered with an error, and can be repeated under its key: there is one event.
/// Without a key nobody can know that it is the same one.
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_whose_answer_was_lost_is_repeated_under_its_key() {
    let wired = Wired::new().await;
    let receiver = Receiver::answering(204).await;
    let server = serve(&workplace(&wired.url()), &[]).await;

    wired.proxy.lose_answers_to(COMMIT, 1);
    let unknown = server.api.enqueue(&receiver.url(), Some("a key")).await;
    unknown.must_be_unavailable(&["store_unavailable"]);
    assert_eq!(wired.proxy.lost(), 1);
    let repeated = server.api.enqueue(&receiver.url(), Some("a key")).await;
    assert_eq!((repeated.status, &repeated.body["duplicate"]), (200, &true.into()), "{repeated:?}");

    wired.proxy.lose_answers_to(ENQUEUE, 1);
    server.api.enqueue(&receiver.url(), None).await.must_be_unavailable(&["store_unavailable"]);
    assert_eq!(wired.proxy.lost(), 2);
    let another = server.api.enqueue(&receiver.url(), None).await;

    let entries = wired.ledger().until_delivered().await;
    assert_eq!(entries.len(), 3, "one under the key, two without: {entries:?}");
    let acknowledged = [repeated.id(), another.id()].into();
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0, "nothing is sent twice");
    server.running.stopped().await;
}

/// P5: a settle applies once, however often its answer is lost: one attempt is recorded, and nothing is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_settle_whose_answer_was_lost_applies_once() {
    let wired = Wired::new().await;
    let receiver = Receiver::answering(204).await;
    let server = serve(&workplace(&wired.url()), &[]).await;
    wired.proxy.lose_answers_to(SETTLE, 3);
    let mut acknowledged = std::collections::BTreeSet::new();
    for _ in 0..20 {
        acknowledged.insert(server.api.enqueue(&receiver.url(), None).await.id());
    }
    let entries = wired.ledger().until_delivered().await;
    let told = async || (wired.proxy.lost() == 3).then_some(());
    eventually("three answers are lost", PATIENCE, told).await;
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0, "nothing is sent twice");
    let text = server.running.stopped().await;
    assert!(!text.contains("lease_lost"), "{text}");
    let totals: serde_json::Value =
        serde_json::from_str(text.lines().find(|line| line.contains(r#""lost""#)).unwrap()).unwrap();
    assert_eq!((&totals["delivered"], &totals["lost"]), (&20.into(), &0.into()), "{totals}");
}

/// P5, P7: a failed attempt whose settle's answer was lost is counted once, and the next one is made on time.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_whose_settle_was_not_answered_is_counted_once() {
    let wired = Wired::new().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 204 })).await;
    let server = serve(&workplace(&wired.url()), &[]).await;
    wired.proxy.lose_answers_to(SETTLE, 2);
    let id = server.api.enqueue(&receiver.url(), None).await.id();
    let entries = wired.ledger().until_delivered().await;
    assert_eq!((entries.len(), entries[0].attempt_count, entries[0].attempts), (1, 2, 2), "{entries:?}");
    assert_eq!(arrivals(&receiver), [(id, 2)].into());
    server.running.stopped().await;
}

/// P1, P11: what a claim took whose answer was lost is nobody's until its lease has run out, and is delivered then, once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_claim_took_whose_answer_was_lost_is_delivered() {
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let mut acknowledged = std::collections::BTreeSet::new();
    for _ in 0..20 {
        acknowledged.insert(server.api.enqueue(&receiver.url(), None).await.id());
    }
    wired.proxy.lose_answers_to(CLAIM, 1);
    let began = tokio::time::Instant::now();
    let dispatcher = dispatch(&place, &[]).await;
    let entries = wired.ledger().until_delivered().await;
    measured("delivered after a claim without an answer, lease of two seconds", began.elapsed());
    assert_eq!(wired.proxy.lost(), 1);
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0, "nothing is sent twice");
    assert!(began.elapsed() < LEASE * 10, "{:?}", began.elapsed());
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}

/// P12: renewals whose answers get lost were made all the same. No lease lapses, and each is sent once.
#[tokio::test(flavor = "multi_thread")]
async fn leases_hold_when_answers_to_renewals_get_lost() {
    const HELD: usize = 20;
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let (receiver, gate) = holding(usize::MAX).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatchers = [dispatch(&place, &[]).await, dispatch(&place, &[]).await];
    let mut acknowledged = std::collections::BTreeSet::new();
    for _ in 0..HELD {
        acknowledged.insert(server.api.enqueue(&receiver.url(), None).await.id());
    }
    receiver.wait_for(HELD, PATIENCE).await;
    // One of three or so: a lease that is not known to be renewed three times in a row is given up.
    for round in 1..=4 {
        wired.proxy.lose_answers_to(RENEW, 1);
        eventually("a renewal's answer is lost", PATIENCE, async || (wired.proxy.lost() == round).then_some(())).await;
        tokio::time::sleep(LEASE).await;
    }
    gate.open();
    let entries = wired.ledger().until_delivered().await;
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0, "no lease lapsed");
    for dispatcher in dispatchers {
        let text = dispatcher.running.stopped().await;
        assert!(!text.contains("took back expired leases"), "{text}");
    }
    server.running.stopped().await;
}
