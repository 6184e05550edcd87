//! Crashes of the real binary on real databases: killed at random and at named places, frozen beyond its leases, asked to
//! end under load. Whatever happens is judged by the same checker afterwards.
//!
//! A failure names its seed; `POSTRIDER_SEED=…` repeats what was injected.

#![allow(clippy::unwrap_used, reason = "a helper of a test may fail it, as the test itself may")]

mod chaos;
mod named_places;
mod poison;
mod released;
mod shutdown;
mod takeover;
mod transactions;

use postrider_promises::checker::Verdict;
use postrider_promises::fleet::Arena;
use postrider_promises::load::{Fate, Way};

/// Fails with what the checker complains of.
#[track_caller]
fn must_hold(verdict: &Verdict) {
    assert!(verdict.complaints.is_empty(), "{}\n{:?}", verdict.told(), verdict.figures);
}

/// Enqueues so many events at once.
async fn enqueue(arena: &Arena, count: usize) {
    let numbers = std::iter::repeat_with(|| arena.load.begin(Way::Request)).take(count).collect();
    enqueue_these(arena, numbers).await;
}

async fn enqueue_these(arena: &Arena, numbers: Vec<u64>) {
    let events = numbers.iter().map(|number| arena.load.event(*number)).collect();
    let enqueued = if arena.is_sqlite() {
        postrider::Store::enqueue(&arena.sqlite(), events).await
    } else {
        postrider::Store::enqueue(&arena.postgres().await, events).await
    };
    assert_eq!(enqueued.unwrap().len(), numbers.len());
    for number in numbers {
        arena.load.settle(number, Fate::Acknowledged);
    }
}
