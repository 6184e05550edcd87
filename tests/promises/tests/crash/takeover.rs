//! What a dispatcher held that is gone, or asleep.

use std::time::Duration;

use postrider_conformance::wait::eventually;
use postrider_promises::checker::Terms;
use postrider_promises::fleet::{Arena, Role, Start, terms};
use postrider_promises::inbox::{Inbox, Reply};
use postrider_promises::process::PATIENCE;

use crate::{enqueue, must_hold};

const EVENTS: usize = 50;

/// Long enough that what is held is held.
const HOLD: Duration = Duration::from_millis(1_500);

async fn holding() -> Inbox {
    Inbox::open(|_, _| Reply { wait: HOLD, ..Reply::status(200) }).await
}

/// With a timeout that a busy machine does not reach.
fn patient() -> Start {
    Start { arguments: ["--timeout", "60s"].map(str::to_owned).to_vec(), ..Start::default() }
}

async fn has_arrived(arena: &Arena, count: usize) {
    let there = async || (arena.inbox.count() >= count).then_some(());
    eventually(&format!("{count} requests"), PATIENCE, there).await;
}

/// P11: with another dispatcher there, undisturbed, a killed one's deliveries are taken back within its lease and one
/// poll. The checker measures from the end of each lease.
#[tokio::test]
async fn what_a_killed_dispatcher_held_is_taken_over_within_a_lease_and_a_poll() {
    let arena = Arena::on_postgres(holding().await, Terms { leeway: Duration::from_secs(5), ..terms() }).await;
    let killed = arena.start(Role::Dispatch, patient());
    killed.running.line("it dispatches", |line| line.contains("dispatching from")).await;
    enqueue(&arena, EVENTS).await;
    has_arrived(&arena, EVENTS).await;
    let surviving = arena.start(Role::Dispatch, patient());
    surviving.running.line("it dispatches", |line| line.contains("dispatching from")).await;
    arena.kill(killed).await;
    arena.all_settled().await;
    arena.terminate(surviving).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    assert!(verdict.figures.abandoned > 0 && verdict.figures.delivered == EVENTS, "{:?}", verdict.figures);
}

/// P4: a dispatcher that was frozen beyond its lease, with answers waiting for it, settles nothing when it wakes up:
/// the checker finds every attempt under the lease of whoever settled it.
#[tokio::test]
async fn a_dispatcher_that_slept_beyond_its_lease_settles_nothing() {
    let arena = Arena::on_postgres(holding().await, terms()).await;
    let mut sleeper = arena.start(Role::Dispatch, patient());
    enqueue(&arena, EVENTS).await;
    has_arrived(&arena, EVENTS).await;
    arena.freeze(&mut sleeper);
    let successor = arena.start(Role::Dispatch, patient());
    // The successor has them all, so the sleeper's leases are gone.
    has_arrived(&arena, 2 * EVENTS).await;
    arena.thaw(&mut sleeper);
    arena.all_settled().await;
    let refused = |line: &str| line.contains(r#""code":"lease_lost""#) && line.contains("nothing was changed");
    let all_refused = async || (sleeper.running.count(refused) == EVENTS).then_some(());
    eventually("every late settle is refused", PATIENCE, all_refused).await;
    let names = (sleeper.worker.clone(), successor.worker.clone());
    arena.terminate(sleeper).await;
    arena.terminate(successor).await;
    let evidence = arena.evidence().await;
    must_hold(&postrider_promises::checker::judge(&evidence));
    assert_eq!(evidence.rows.attempts.len(), EVENTS);
    assert!(evidence.rows.attempts.iter().all(|attempt| attempt.worker_id == names.1), "{names:?}");
}

/// P4 on SQLite, where nobody else may dispatch meanwhile: a process that slept beyond its leases finds them taken back
/// by itself, or renews them first; either way each attempt is settled under a lease that was held.
#[tokio::test]
async fn a_process_that_slept_beyond_its_lease_goes_on_alone_on_sqlite() {
    let arena = Arena::on_sqlite(holding().await, terms()).await;
    let mut sleeper = arena.start(Role::Dispatch, patient());
    enqueue(&arena, EVENTS).await;
    has_arrived(&arena, EVENTS).await;
    arena.freeze(&mut sleeper);
    tokio::time::sleep(arena.terms.lease + Duration::from_millis(500)).await;
    arena.thaw(&mut sleeper);
    arena.all_settled().await;
    arena.terminate(sleeper).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    assert_eq!(verdict.figures.delivered, EVENTS, "{:?}", verdict.figures);
}

/// P9: the process ends between the last failure and its settle, again and again; the delivery dies once, and is announced
/// once.
#[tokio::test]
async fn a_death_is_announced_once_however_often_its_dispatcher_crashes() {
    let arena = Arena::on_postgres(Inbox::open(|_, _| Reply::status(500)).await, terms()).await;
    enqueue(&arena, EVENTS).await;
    for place in ["before_settle=abort@20", "inside_settle=abort@8", "after_settle=abort@8"] {
        // Few at a time, so that there are many settles.
        let arguments = ["--max-in-flight", "4"].map(str::to_owned).to_vec();
        let doomed = arena.start(Role::Dispatch, Start { arguments, ..Start::ending_at(place) });
        arena.ends_at_its_place(doomed).await;
    }
    let next = arena.start(Role::Dispatch, Start::default());
    arena.all_settled().await;
    arena.terminate(next).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    assert_eq!((verdict.figures.delivered, verdict.figures.dead), (0, EVENTS), "{:?}", verdict.figures);
}
