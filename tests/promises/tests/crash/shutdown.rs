//! P22: a dispatcher that is asked to end, in the midst of its work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use postrider_conformance::wait::eventually;
use postrider_promises::dice::Dice;
use postrider_promises::evidence::Deed;
use postrider_promises::fleet::{Arena, Role, Start, terms};
use postrider_promises::inbox::{Inbox, Reply};
use postrider_promises::process::PATIENCE;
use serde_json::Value;

use crate::must_hold;

/// What the dispatchers of these trials are told, and what they may need on top.
const DRAIN: Duration = Duration::from_secs(5);
const LEEWAY: Duration = Duration::from_secs(5);

/// The next instant at which somebody who stopped claiming may still be handed what it had asked for before.
const CLOSE: i64 = 50_000;

/// Every fifth event is answered too late for the drain, as long as the first dispatcher runs.
async fn inbox(slow: Arc<AtomicBool>) -> Inbox {
    Inbox::open(move |number, _| {
        let wait = match number % 5 {
            0 if slow.load(Ordering::SeqCst) => Duration::from_secs(40),
            1 => Duration::from_millis(700),
            _ => Duration::from_millis(5),
        };
        Reply { wait, ..Reply::status(200) }
    })
    .await
}

async fn ends_in_order(arena: &Arena, slow: &AtomicBool) {
    let load = Arc::clone(&arena.load);
    let loading = if arena.is_sqlite() {
        let store = arena.sqlite();
        tokio::spawn(async move { load.by_closures(store, Dice::new(1)).await })
    } else {
        let store = arena.postgres().await;
        tokio::spawn(async move { load.by_transactions(store, Dice::new(1)).await })
    };
    let arguments = ["--timeout", "60s"].map(str::to_owned).to_vec();
    let asked = arena.start(Role::Dispatch, Start { arguments, ..Start::default() });
    let busy = async || (arena.inbox.count() >= 60).then_some(());
    eventually("it is busy", PATIENCE, busy).await;

    let worker = asked.worker.clone();
    let (took, text) = arena.terminate(asked).await;
    assert!(took < DRAIN + LEEWAY, "it took {took:?} to end");
    let stopped_at = stopped_at(&text);
    arena.load.end();
    loading.await.unwrap();

    let history = arena.evidence().await.rows.history;
    let mut claimed_late = 0;
    for step in &history {
        if let Deed::Claimed(grant) = &step.deed
            && grant.owner == worker
            && step.at > stopped_at + CLOSE
        {
            claimed_late += 1;
            // What it had asked for before is given back when it comes: the very next step is the end of that lease.
            let next = history.iter().skip_while(|other| !std::ptr::eq(*other, step)).nth(1);
            let given_back =
                history.iter().any(|other| matches!(&other.deed, Deed::Ended(end) if end.token == grant.token));
            assert!(given_back, "claimed {} after it said that it stops: {next:?}", step.delivery_id);
        }
    }
    assert!(claimed_late <= 200, "one claim may have been under way, not {claimed_late} deliveries");
    let rows = arena.source.rows().await;
    let held = |token| rows.history.iter().any(|step| matches!(&step.deed, Deed::Ended(end) if end.token == token));
    for step in &rows.history {
        if let Deed::Claimed(grant) = &step.deed {
            assert!(held(grant.token), "{} is still leased to {}", step.delivery_id, grant.owner);
        }
    }
    assert!(rows.deliveries.iter().all(|row| row.state.abandoned_count == 0), "nothing counts as abandoned");
    let released = rows.deliveries.iter().filter(|row| row.state.status == "pending").count();
    assert!(released > 0, "some were given back, uncharged");

    slow.store(false, Ordering::SeqCst);
    let next = arena.start(Role::Dispatch, Start::default());
    arena.all_settled().await;
    arena.terminate(next).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    assert!(verdict.figures.released > 0 && verdict.figures.abandoned == 0, "{:?}", verdict.figures);
}

/// When it said that nothing new is claimed, in microseconds.
fn stopped_at(text: &str) -> i64 {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.into_iter().find(|line| line.to_string().contains("nothing new is claimed"));
    let line = line.unwrap_or_else(|| panic!("it says that it stops: {text}"));
    let at: Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
    at.as_microsecond()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_to_end_under_load_it_settles_or_gives_back_all_it_holds_on_postgres() {
    let slow = Arc::new(AtomicBool::new(true));
    let arena = Arena::on_postgres(inbox(Arc::clone(&slow)).await, terms()).await;
    ends_in_order(&arena, &slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_to_end_under_load_it_settles_or_gives_back_all_it_holds_on_sqlite() {
    let slow = Arc::new(AtomicBool::new(true));
    let arena = Arena::on_sqlite(inbox(Arc::clone(&slow)).await, terms()).await;
    ends_in_order(&arena, &slow).await;
}
