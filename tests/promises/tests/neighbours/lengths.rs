//! Attempts that last: longer than any deadline, because their result cannot be settled.
//!
//! That a receiver slower than the lease is asked once (P12) is tried on processes beside the command line, in
//! `takeover.rs`.

use std::time::{Duration, Instant};

use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::eventually;
use postrider_promises::process::PATIENCE;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::stage::{Stage, measured};

/// P13, P4: nothing but a settle writes attempts, so a lock on them makes an attempt that does not come to its end while
/// everything else goes on: its lease is renewed to its hard deadline and no longer, somebody takes it over, and when the
/// lock is gone the first of the two settles changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_without_end_is_renewed_until_its_hard_deadline_and_taken_over_after_it() {
    const LEASE: Duration = Duration::from_secs(1);
    // One timeout and, for the settle, one lease.
    const HARD_DEADLINE: Duration = Duration::from_secs(4);
    const LEEWAY: Duration = Duration::from_secs(10);
    let stage = Stage::postgres().await;
    let receiver = Receiver::answering(200).await;
    let served = stage.serve(&["--no-dispatch"]).await;
    let endpoint = served.api.register(&receiver.url(), "hung.told").await;
    let mut connection = PgConnection::connect(stage.database.as_ref().unwrap().url()).await.unwrap();
    let mut lock = connection.begin().await.unwrap();
    lock.execute("lock table postrider.attempts in share mode").await.unwrap();

    let options = ["--lease", "1s", "--timeout", "3s", "--connect-timeout", "3s", "--poll-interval", "200ms"];
    let dispatching = stage.workplace.start(["dispatch"].into_iter().chain(options));
    served.api.send("hung.told", 1).await;
    let first = receiver.wait_for(1, PATIENCE).await[0].arrived;
    let second = receiver.wait_for(2, PATIENCE).await[1].arrived;
    let gap = second - first;
    measured("an attempt without end is taken over after", gap);
    assert!(gap + LEASE > HARD_DEADLINE, "its lease was renewed at first, but it was sent again after {gap:?}");
    assert!(gap < HARD_DEADLINE + LEASE + LEEWAY, "its lease was given up, but it was sent again only after {gap:?}");
    let ended = |line: &str| line.contains("renewal ended") && line.contains(r#""reason":"deadline""#);
    assert_eq!(dispatching.count(ended), 1, "{}", dispatching.text());

    let released = Instant::now();
    lock.rollback().await.unwrap();
    eventually("it is delivered", PATIENCE, async || {
        (served.api.count(&endpoint, "delivered").await == 1).then_some(())
    })
    .await;
    measured("a hung settle goes on after", released.elapsed());
    let lost = |line: &str| line.contains(r#""code":"lease_lost""#) && line.contains("nothing was changed");
    eventually("the first settle is refused", PATIENCE, async || (dispatching.count(lost) >= 1).then_some(())).await;
    let page = served.api.get("/v1/deliveries?limit=2").await;
    let id = page["data"][0]["id"].as_str().unwrap();
    let delivery = served.api.get(&format!("/v1/deliveries/{id}")).await;
    assert_eq!(delivery["attempt_count"], 1, "{delivery}");
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 1, "{delivery}");
    dispatching.stopped().await;
}
