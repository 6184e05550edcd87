//! Kills, freezes and aborts at random, under load.

use std::time::Duration;

use postrider_promises::chaos::{ENOUGH, Plan, Replay, run};
use postrider_promises::checker::Verdict;
use postrider_promises::dice;
use postrider_promises::fleet::{Arena, terms};
use postrider_promises::inbox::Inbox;

use crate::must_hold;

/// For how long each of these injects faults. The soak does it for as long as one likes.
const LENGTH: Duration = Duration::from_secs(8);

async fn on_postgres(fleet: usize) {
    let seed = dice::seed();
    let _replay = Replay(seed);
    let arena = Arena::on_postgres(Inbox::moody(seed).await, terms()).await;
    tried(&arena, seed, fleet).await;
}

async fn tried(arena: &Arena, seed: u64, fleet: usize) {
    run(arena, &Plan { seed, fleet, length: LENGTH, false_clock: None }).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    was_a_trial(arena, &verdict);
}

/// A trial in which nothing happened proves nothing.
fn was_a_trial(arena: &Arena, verdict: &Verdict) {
    let (injected, figures) = (arena.injected(), &verdict.figures);
    let enough = injected >= ENOUGH && figures.acknowledged >= 50 && figures.delivered >= 50;
    assert!(enough, "{injected} faults, {figures:?}");
}

/// P1, P2, P3, P4, P6, P7, P8, P9, P11, P19, by the checker: one dispatcher, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_dispatcher_that_crashes_again_and_again_loses_nothing_on_postgres() {
    on_postgres(1).await;
}

/// The same with two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_dispatchers_that_crash_at_random_lose_nothing_on_postgres() {
    on_postgres(2).await;
}

/// The same with four.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_dispatchers_that_crash_at_random_lose_nothing_on_postgres() {
    on_postgres(4).await;
}

/// The same on a file, which has one dispatcher at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_again_and_again_loses_nothing_on_sqlite() {
    let seed = dice::seed();
    let _replay = Replay(seed);
    let arena = Arena::on_sqlite(Inbox::moody(seed).await, terms()).await;
    tried(&arena, seed, 1).await;
}
