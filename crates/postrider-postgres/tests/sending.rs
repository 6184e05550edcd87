//! What a database sees of an attempt while it is under way: a lease, and nothing else.

use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use postrider_conformance::flights::{Running, admission, dispatcher, event_for};
use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually};
use postrider_postgres::testing::TestDatabase;

#[tokio::test]
async fn p23_no_transaction_is_open_during_an_http_call() {
    let database = TestDatabase::create().await;
    let store: Arc<dyn Store> = Arc::new(database.store().with_admission(admission()));
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    store.enqueue(vec![event_for(&receiver); 20]).await.unwrap();
    // A poll so rare that nothing but a forgotten transaction could be open while the attempts are held.
    let running = Running::start(dispatcher(&store, "w1").poll_interval(Duration::from_secs(600)));
    receiver.wait_for(20, PATIENCE).await;
    eventually("all connections to be idle", PATIENCE, || async {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid() \
             and (xact_start is not null or state like 'idle in transaction%')",
        )
        .fetch_one(database.store().pool())
        .await
        .unwrap();
        (open == 0).then_some(())
    })
    .await;
    assert_eq!(receiver.open_requests(), 20, "the attempts are still under way");
    gate.open();
    assert_eq!(running.stop().await.delivered, 20);
}
