//! What a Postgres store asks for, counted on its wire.

use std::time::Duration;

use postrider::{DestinationPolicy, EndpointId, EndpointSettings, NewEndpoint, NewEvent, Store as _, Verdict};
use postrider_conformance::trial::{LEASE, operator, url_of, worker};
use postrider_conformance::wait::eventually;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use postrider_promises::counter::Counts;
use postrider_promises::process::PATIENCE;
use postrider_promises::proxy::Proxy;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::ledger::{Ledger, per};
use crate::work::{BATCH, Claimer, LANES, enqueue, event, payload, settle_all};

/// A database on the server that tests share, by way of a wire that counts.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) proxy: Proxy,
    pub(crate) database: TestDatabase,
}

impl Wired {
    pub(crate) async fn new() -> Self {
        let database = TestDatabase::create().await;
        let server: PgConnectOptions = database.url().parse().unwrap();
        Self { proxy: Proxy::to(server.get_port()).await, database }
    }

    /// Over the wire.
    pub(crate) fn url(&self) -> String {
        self.proxy.url_of(self.database.url())
    }

    /// A store with a single connection, so that everything is prepared once.
    async fn store(&self) -> PostgresStore {
        let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
        let pool = pool.connect(&self.url()).await.unwrap();
        PostgresStore::from_pool(pool).with_keyring(self.database.keyring())
    }

    /// What goes over the wire for this work, when its statements were prepared before.
    async fn counted(&self, store: &PostgresStore, work: impl AsyncFnOnce()) -> Counts {
        at_rest(store).await;
        let before = self.proxy.counts();
        work().await;
        at_rest(store).await;
        self.proxy.counts().since(&before)
    }
}

/// A connection may have something to say after it was given back.
async fn at_rest(store: &PostgresStore) {
    let pool = store.pool();
    eventually("every connection is idle", PATIENCE, async || (pool.num_idle() == pool.size() as usize).then_some(()))
        .await;
}

fn note(ledger: &mut Ledger, what: &str, counts: &Counts, units: usize, at_most: [f64; 2]) {
    ledger.remark(what, &counts.beginnings());
    ledger.note(format!("{what}: statements"), per(counts.carried_out(), units), at_most[0]);
    ledger.note(format!("{what}: round trips"), per(counts.round_trips, units), at_most[1]);
}

#[tokio::test]
async fn a_batch_is_one_statement_however_long_it_is() {
    let wired = Wired::new().await;
    let store = wired.store().await;
    let mut ledger = Ledger::of("Postgres: what goes over the wire");

    // Each kind once, so that what is counted later is prepared.
    enqueue(&store, 2 * BATCH, event).await;
    store.enqueue(vec![event(0)]).await.unwrap();
    store.enqueue(vec![event(0).idempotency_key("warm")]).await.unwrap();
    let mut claimer = Claimer::default();
    let warm = claimer.claim_all(&store, 2 * BATCH).await;
    store.renew(&worker("w1"), &[warm[0].lease], LEASE).await.unwrap();
    settle_all(&store, &warm, Verdict::Delivered).await;
    store.promote(1).await.unwrap();
    store.recover(1, 5).await.unwrap();

    let singly = 200;
    let counts = wired
        .counted(&store, async || {
            for number in 0..singly {
                store.enqueue(vec![event(number)]).await.unwrap();
            }
        })
        .await;
    note(&mut ledger, "an event enqueued by itself", &counts, singly, [1.0, 2.0]);

    let counts = wired
        .counted(&store, async || {
            for number in 0..50 {
                store.enqueue(vec![event(number).idempotency_key(format!("key-{number}"))]).await.unwrap();
            }
        })
        .await;
    note(&mut ledger, "an event enqueued by itself, with a key", &counts, 50, [3.0, 4.0]);

    let counts =
        wired.counted(&store, async || drop(store.enqueue((0..1_000).map(event).collect()).await.unwrap())).await;
    note(&mut ledger, "a list of 1,000 events", &counts, 1, [2.0, 4.0]);
    ledger.note("an event of such a list: bytes sent", per(counts.bytes_asked, 1_000), 800.0);

    let mut claims = Vec::new();
    let counts = wired.counted(&store, async || claims = claimer.claim_all(&store, 1_000).await).await;
    note(&mut ledger, "a claim of 200", &counts, 5, [2.0, 4.0]);
    ledger.note("a delivery of such a claim: bytes received", per(counts.bytes_answered, 1_000), 950.0);

    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    let counts = wired
        .counted(&store, async || {
            for _ in 0..6 {
                assert_eq!(store.renew(&worker("w1"), &leases, LEASE).await.unwrap().len(), 1_000);
            }
        })
        .await;
    note(&mut ledger, "a minute of heartbeats with 1,000 held", &counts, 1, [6.0, 12.0]);
    ledger.note("a lease renewed: bytes both ways", per(counts.bytes_asked + counts.bytes_answered, 6_000), 120.0);

    let counts = wired.counted(&store, async || settle_all(&store, &claims[..600], Verdict::Delivered).await).await;
    note(&mut ledger, "a settle of 200", &counts, 3, [2.0, 4.0]);
    ledger.note("a result of such a settle: bytes sent", per(counts.bytes_asked, 600), 160.0);
    ledger.note("transactions of a settle of 200", per(counts.transactions, 3), 1.0);

    let at_once = Verdict::Retry { after: Duration::ZERO };
    let counts = wired.counted(&store, async || settle_all(&store, &claims[600..], at_once).await).await;
    note(&mut ledger, "a settle of 200 failures", &counts, 2, [2.0, 4.0]);

    let counts = wired.counted(&store, async || assert_eq!(store.promote(500).await.unwrap().ready, 400)).await;
    note(&mut ledger, "400 retries that are due", &counts, 1, [2.0, 4.0]);

    ledger.close();
}

#[tokio::test]
async fn endpoints_cost_a_claim_one_statement_more_and_their_limits_a_few() {
    let wired = Wired::new().await;
    let store = wired.store().await;
    let mut ledger = Ledger::of("Postgres: what goes over the wire");
    let mut plain = Vec::new();
    for number in 0..LANES {
        plain.push(endpoint(&store, &format!("plain-{number}"), EndpointSettings::default()).await);
    }
    let to_plain = |number: usize| to_endpoint(plain[number % LANES]);
    let mut claimer = Claimer::default();
    enqueue(&store, 5 * BATCH, to_plain).await;
    let warm = claimer.claim_all(&store, BATCH).await;
    settle_all(&store, &warm, Verdict::Delivered).await;

    let mut claims = Vec::new();
    let counts = wired.counted(&store, async || claims = claimer.claim_all(&store, 4 * BATCH).await).await;
    note(&mut ledger, "a claim of 200 for 16 endpoints", &counts, 4, [3.0, 6.0]);
    let counts = wired.counted(&store, async || settle_all(&store, &claims, Verdict::Delivered).await).await;
    note(&mut ledger, "a settle of 200 for 16 endpoints", &counts, 4, [2.0, 4.0]);

    let limited = EndpointSettings { rate_limit: Some("10000/s".parse().unwrap()), ..EndpointSettings::default() };
    let mut metered = Vec::new();
    for number in 0..LANES {
        metered.push(endpoint(&store, &format!("metered-{number}"), limited.clone()).await);
    }
    enqueue(&store, 5 * BATCH, |number| to_endpoint(metered[number % LANES])).await;
    let warm = claimer.claim_all(&store, BATCH).await;
    settle_all(&store, &warm, Verdict::Delivered).await;
    let counts = wired.counted(&store, async || drop(claimer.claim_all(&store, 4 * BATCH).await)).await;
    note(&mut ledger, "a claim of 200 for 16 endpoints with rate limits", &counts, 4, [7.0, 14.0]);
    ledger.close();
}

fn to_endpoint(id: EndpointId) -> NewEvent {
    NewEvent::new("cost.counted", payload()).to_endpoint(id)
}

async fn endpoint(store: &PostgresStore, host: &str, settings: EndpointSettings) -> EndpointId {
    let url = DestinationPolicy::default().check_url(&url_of(host)).unwrap();
    let endpoint = NewEndpoint { tenant: "default".to_owned(), url, event_types: vec!["*".parse().unwrap()], settings };
    store.create_endpoint(endpoint, &operator()).await.unwrap().id
}
