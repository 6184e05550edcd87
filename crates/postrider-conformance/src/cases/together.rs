//! Everything at once, from two handles: whatever the interleaving, nothing is lost, shared, counted twice or stuck.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::store::{Action, Settlement};
use postrider::{DeliveryId, DeliveryStatus, Lease, Store, Verdict};

use crate::trial::{LEASE, Trial, claim_from, event_to, operator, retry_after, settle_of, worker};
use crate::wait::{PATIENCE, eventually, within};

/// A few thousand steps of a linear congruence: varied enough, and the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// What one worker saw of its own work.
#[derive(Default)]
struct Seen {
    applied: u64,
    cancelled: BTreeSet<DeliveryId>,
}

async fn work(
    store: Arc<dyn Store>,
    number: u64,
    ids: Arc<Vec<DeliveryId>>,
    tokens: Arc<Mutex<BTreeSet<u128>>>,
) -> Seen {
    let name = format!("w{number}");
    let worker = worker(&name);
    let mut dice = Dice(number);
    let mut held: Vec<Lease> = Vec::new();
    let mut seen = Seen::default();
    for _ in 0..60 {
        match dice.roll(10) {
            0..3 => {
                // A lease so short that others take over all the time.
                let claims = claim_from(&*store, &name, 4, Duration::from_millis(2)).await;
                for claim in &claims {
                    let fresh = tokens.lock().unwrap().insert(claim.lease.token.0.as_u128());
                    assert!(fresh, "p3: a claim has a token of its own");
                }
                held.extend(claims.iter().map(|claim| claim.lease));
            }
            3..6 => {
                let verdicts = [Verdict::Delivered, retry_after(0), retry_after(0), Verdict::Dead];
                let settles: Vec<_> =
                    held.iter().map(|lease| settle_of(*lease, verdicts[dice.roll(verdicts.len())])).collect();
                for settlement in store.settle(&worker, &settles).await.unwrap() {
                    assert_ne!(settlement, Settlement::AppliedEarlier, "nobody settles twice here");
                    seen.applied += u64::from(settlement == Settlement::Applied);
                }
                held.clear();
            }
            6 => {
                store.renew(&worker, &held, Duration::from_millis(5)).await.unwrap();
                let given_back = held.split_off(held.len() / 2);
                store.release(&worker, &given_back).await.unwrap();
            }
            7 => {
                store.recover(10, 1000).await.unwrap();
                store.promote(10).await.unwrap();
            }
            8 => {
                store.retry(ids[dice.roll(ids.len())], &operator()).await.unwrap();
            }
            _ => {
                let id = ids[dice.roll(ids.len())];
                if store.cancel(id, "not wanted", &operator()).await.unwrap() == Action::Done {
                    seen.cancelled.insert(id);
                }
            }
        }
    }
    seen
}

pub async fn p3_p5_p7_eight_workers_on_two_handles_lose_share_and_miscount_nothing(t: &Trial) {
    let mut ids = Vec::new();
    for host in ["a", "b", "c"] {
        ids.extend(t.backlog(host, 20).await);
    }
    let (ids, tokens) = (Arc::new(ids), Arc::default());
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            tokio::spawn(work(store, number, Arc::clone(&ids), Arc::clone(&tokens)))
        })
        .collect();
    let mut applied = 0;
    let mut cancelled = BTreeSet::new();
    for worker in workers {
        let seen = worker.await.unwrap();
        applied += seen.applied;
        cancelled.extend(seen.cancelled);
    }
    assert!(applied > 0 && !cancelled.is_empty(), "they did work");
    let rows: u64 = t.places().await.attempts.values().sum();
    assert_eq!(rows, applied, "as many attempts as settles that applied");
    t.check_places().await;

    // What nobody finished can still be finished: nothing is stuck anywhere.
    t.freeze();
    eventually("everything is settled", PATIENCE, async || {
        // The stopped clock may be behind the one by which leases and retries were written, so it is set far ahead.
        t.advance(Duration::from_hours(24 * 365));
        t.store.recover(1000, 1000).await.unwrap();
        t.store.promote(1000).await.unwrap();
        t.claim_and_settle(Verdict::Delivered).await;
        t.deliveries().await.iter().all(|delivery| delivery.status.is_settled()).then_some(())
    })
    .await;
    for delivery in t.deliveries().await {
        let numbers: Vec<_> = t.attempts(delivery.id).await.iter().map(|attempt| attempt.number).collect();
        assert!(numbers.iter().copied().eq(1..=u32::try_from(numbers.len()).unwrap()), "without gaps: {numbers:?}");
        if delivery.status == DeliveryStatus::Cancelled {
            assert!(cancelled.contains(&delivery.id));
        }
    }
}

pub async fn p5_heartbeats_and_settles_of_the_same_leases_neither_block_nor_apply_twice(t: &Trial) {
    for _ in 0..4 {
        t.enqueue_all((0..120).map(|number| event_to(["a", "b", "c"][number % 3])).collect()).await;
        let leases: Vec<_> = t.claim("w1", 120).await.iter().map(|claim| claim.lease).collect();
        let racers: Vec<_> = (0..6_u64)
            .map(|number| {
                let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
                let mut leases = leases.clone();
                // Each has an order of its own, so that two of them meet each other's rows from opposite ends.
                let mut dice = Dice(number);
                leases.sort_by_cached_key(|_| dice.roll(1000));
                tokio::spawn(async move {
                    let mut applied = 0;
                    if number < 2 {
                        for _ in 0..10 {
                            store.renew(&worker("w1"), &leases, LEASE).await.unwrap();
                        }
                        return applied;
                    }
                    for some in leases.chunks(40) {
                        let settles: Vec<_> = some.iter().map(|lease| settle_of(*lease, Verdict::Delivered)).collect();
                        for settlement in store.settle(&worker("w1"), &settles).await.unwrap() {
                            assert_ne!(settlement, Settlement::LeaseLost);
                            applied += u32::from(settlement == Settlement::Applied);
                        }
                    }
                    applied
                })
            })
            .collect();
        let mut applied = 0;
        for racer in racers {
            applied += within("no racer waits for another for ever", PATIENCE, racer).await.unwrap();
        }
        assert_eq!(applied, 120);
    }
}

async fn claim_until(store: Arc<dyn Store>, name: String, total: Arc<AtomicUsize>, enough: usize) -> Vec<DeliveryId> {
    let mut ids = Vec::new();
    while total.load(Ordering::SeqCst) < enough {
        let claims = claim_from(&*store, &name, 10, LEASE).await;
        total.fetch_add(claims.len(), Ordering::SeqCst);
        ids.extend(claims.iter().map(|claim| claim.lease.delivery_id));
    }
    ids
}

pub async fn enqueues_and_claims_at_once_deliver_everything_once(t: &Trial) {
    let enqueuers: Vec<_> = (0..4)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..25 {
                    let events = vec![event_to("a"), event_to("b")];
                    let enqueued = store.enqueue(events).await.unwrap();
                    ids.extend(enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id));
                }
                ids
            })
        })
        .collect();
    let total = Arc::new(AtomicUsize::new(0));
    let claimants: Vec<_> = (0..2)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            tokio::spawn(claim_until(store, format!("w{number}"), Arc::clone(&total), 200))
        })
        .collect();
    let mut written = BTreeSet::new();
    for enqueuer in enqueuers {
        written.extend(enqueuer.await.unwrap());
    }
    let mut claimed = Vec::new();
    for claimant in claimants {
        claimed.extend(within("all deliveries are claimed", PATIENCE, claimant).await.unwrap());
    }
    assert_eq!(claimed.len(), written.len(), "p3: none twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), written, "p1: none missing");
}

pub async fn a_thousand_are_claimed_renewed_and_settled_in_one_call_each(t: &Trial) {
    t.freeze();
    t.backlog("a", 1000).await;
    let leases: Vec<_> = t.claim("w1", 1000).await.iter().map(|claim| claim.lease).collect();
    assert_eq!(leases.len(), 1000);
    t.advance_secs(10);
    let renewed = t.store.renew(&worker("w1"), &leases, LEASE).await.unwrap();
    assert_eq!(renewed.len(), 1000);
    let settles: Vec<_> = leases.iter().map(|lease| settle_of(*lease, Verdict::Delivered)).collect();
    assert!(t.settle_all("w1", &settles).await.iter().all(|settlement| *settlement == Settlement::Applied));
    assert_eq!(t.overview().await.delivered, 1000);
}
