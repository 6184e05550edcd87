//! Lanes beside each other: what is wrong with one is its own affair.
//!
//! How fast a machine is says nothing here. What is asserted is who went before whom, and how a neighbour of a bad
//! endpoint fares compared with the same neighbour alone, in the same run.

use std::time::{Duration, Instant};

use postrider_conformance::receiver::{Hostile, Receiver};
use postrider_conformance::wait::eventually;
use postrider_promises::process::PATIENCE;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::stage::{Api, Stage, measured, on_both};

on_both! {
    /// P15: with 64 of 80 slots in a black hole for good, and 10,000 more due there.
    a_black_hole_with_ten_thousand_due_delays_none_of_99_neighbours
    /// P15: a lane is as quick as its own length, however long the others are.
    the_first_delivery_of_a_new_lane_passes_a_backlog_of_hundreds_of_thousands
    /// P15: slots that are dripped away, and an endpoint that is disabled with a backlog.
    a_receiver_that_drips_and_one_that_is_gone_hold_up_nobody
}

/// No attempt ends by itself within a test.
const FOR_EVER: [&str; 4] = ["--timeout", "10m", "--connect-timeout", "10m"];

async fn a_black_hole_with_ten_thousand_due_delays_none_of_99_neighbours(stage: Stage) {
    const NEIGHBOURS: usize = 99;
    const DUE: usize = 10_000;
    const SLOTS_OF_ONE: u64 = 64;
    let (hole, healthy) = (Hostile::black_hole().await, Receiver::answering(200).await);
    let served = stage.serve(&[&FOR_EVER[..], &["--max-in-flight", "80"]].concat()).await;
    for number in 0..NEIGHBOURS {
        served.api.register(&format!("{}{number}", healthy.url()), "healthy.told").await;
    }
    let into_the_hole = served.api.register(&hole.url(), "hole.told").await;
    let alone = rounds(&served.api, &healthy, NEIGHBOURS).await;

    served.api.send("hole.told", DUE).await;
    until_overview(&served.api, "the hole has as many slots as one may have", |overview| {
        overview["in_flight"] == SLOTS_OF_ONE
    })
    .await;
    let beside = rounds(&served.api, &healthy, NEIGHBOURS).await;

    measured("99 neighbours alone, and beside a black hole", (alone, beside));
    assert!(beside < alone * 3 + Duration::from_secs(5), "alone it took {alone:?}, beside the hole {beside:?}");
    let (page, waiting) = (served.api.get("/v1/deliveries?limit=250&status=failed").await, DUE);
    assert_eq!(page["data"], Value::Array(Vec::new()), "no attempt of anybody has failed yet");
    until_overview(&served.api, "everything of the hole is still to be done", |overview| {
        overview["pending"] == waiting && overview["in_flight"] == SLOTS_OF_ONE
    })
    .await;
    let (_, first) = served
        .api
        .ask(served.api.request(reqwest::Method::GET, &format!("/v1/deliveries?limit=1&endpoint_id={into_the_hole}")))
        .await;
    assert_eq!(first["data"][0]["attempt_count"], 0, "{first}");
}

/// How long some rounds take together, in each of which every neighbour is told once.
async fn rounds(api: &Api, healthy: &Receiver, neighbours: usize) -> Duration {
    const ROUNDS: usize = 5;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let before = healthy.request_count();
        api.send("healthy.told", 1).await;
        healthy.wait_for(before + neighbours, PATIENCE).await;
    }
    let paths: std::collections::BTreeSet<String> =
        healthy.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths.len(), neighbours, "everybody was told");
    began.elapsed()
}

/// The overview is counted now and then, not at every look.
async fn until_overview(api: &Api, what: &str, condition: impl Fn(&Value) -> bool) {
    eventually(what, PATIENCE, async || condition(&api.get("/v1/overview").await).then_some(())).await;
}

/// How long the long lane is. `POSTRIDER_LONG_LANE=1000000` tries a million.
fn long_lane() -> usize {
    std::env::var("POSTRIDER_LONG_LANE").map_or(200_000, |text| text.parse().expect("POSTRIDER_LONG_LANE is a number"))
}

async fn the_first_delivery_of_a_new_lane_passes_a_backlog_of_hundreds_of_thousands(stage: Stage) {
    let length = long_lane();
    let (long, new) = (Receiver::answering(200).await, Receiver::answering(200).await);
    let served = stage.serve(&["--no-dispatch"]).await;
    served.api.register(&long.url(), "long.told").await;
    served.api.register(&new.url(), "new.told").await;
    served.api.send("long.told", 1).await;
    multiply(&stage, length).await;

    let dispatching = stage.workplace.start(["dispatch", "--poll-interval", "200ms"]);
    long.wait_until("the long lane is under way", PATIENCE, |long| long.request_count() >= 500).await;
    served.api.send("new.told", 1).await;
    let (sent, before) = (Instant::now(), long.request_count());
    let arrived = new.wait_for(1, PATIENCE).await[0].arrived;
    let passed = long.requests()[before..].iter().filter(|request| request.arrived < arrived).count();
    let waited = arrived.saturating_duration_since(sent);

    measured("a new lane beside a long one: its length, how many went before, how long", (length, passed, waited));
    assert!(passed < length / 100, "{passed} of {length} of the long lane went before, in {waited:?}");
    assert!(long.request_count() < length, "the long lane had something left");
    dispatching.killed().await;
}

/// Makes the only delivery that there is into so many, as if each had been enqueued.
async fn multiply(stage: &Stage, into: usize) {
    let began = Instant::now();
    match &stage.database {
        Some(database) => {
            let statement = format!(
                "with e as (
                   insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at)
                   select postrider.new_id(), tenant, type, payload, metadata, topic, created_at
                   from postrider.events, generate_series(2, {into})
                   returning id
                 ), d as (
                   insert into postrider.deliveries
                     (id, event_id, tenant, endpoint_id, destination_url, lane, next_attempt_at, created_at)
                   select postrider.new_id(), e.id, o.tenant, o.endpoint_id, o.destination_url, o.lane,
                          o.next_attempt_at, o.created_at
                   from e, postrider.deliveries o
                   returning id, lane
                 )
                 insert into postrider.ready (lane, delivery_id) select d.lane, d.id from d order by d.id"
            );
            let mut connection = PgConnection::connect(database.url()).await.unwrap();
            connection.execute(AssertSqlSafe(statement)).await.unwrap();
        }
        None => rusqlite::Connection::open(stage.workplace.sqlite_file())
            .unwrap()
            .execute_batch(&format!(
                "begin immediate;
                 create temp table made as
                 with recursive n (n) as (select 2 union all select n + 1 from n where n < {into})
                 select n.n,
                        unhex(printf('%012x7%03x', unixepoch() * 1000 + n.n / 4096, n.n % 4096) || '8000'
                              || hex(randomblob(6))) as event_id,
                        unhex(printf('%012x7%03x', unixepoch() * 1000 + n.n / 4096, n.n % 4096) || '8001'
                              || hex(randomblob(6))) as id
                 from n;
                 insert into postrider_events (id, tenant, event_type, payload, metadata, topic, created_at)
                 select m.event_id, e.tenant, e.event_type, e.payload, e.metadata, e.topic, e.created_at
                 from temp.made m, (select * from postrider_events limit 1) e;
                 insert into postrider_deliveries
                   (id, event_id, tenant, endpoint_id, lane, destination_url, status, next_attempt_at, created_at)
                 select m.id, m.event_id, d.tenant, d.endpoint_id, d.lane, d.destination_url, d.status,
                        d.next_attempt_at, d.created_at
                 from temp.made m, (select * from postrider_deliveries limit 1) d;
                 insert into postrider_ready (lane, position, delivery_id)
                 select d.lane, d.position + m.n, m.id
                 from temp.made m, (select * from postrider_ready limit 1) d;
                 commit;"
            ))
            .unwrap(),
    }
    measured("a long lane was made", began.elapsed());
}

async fn a_receiver_that_drips_and_one_that_is_gone_hold_up_nobody(stage: Stage) {
    const DUE: usize = 500;
    const SLOTS_OF_ONE: usize = 64;
    let drips = Hostile::drips_headers(Duration::from_millis(50)).await;
    let (gone, healthy) = (Receiver::answering(410).await, Receiver::answering(200).await);
    let served = stage.serve(&[&FOR_EVER[..], &["--max-in-flight", "160"]].concat()).await;
    let dripping = served.api.register(&drips.url(), "drip.told").await;
    let leaving = served.api.register(&gone.url(), "gone.told").await;
    let staying = served.api.register(&healthy.url(), "healthy.told").await;
    served.api.send("drip.told", DUE).await;
    served.api.send("gone.told", DUE).await;
    served.api.send("healthy.told", DUE).await;

    healthy.wait_for(DUE, PATIENCE).await;
    eventually("the last of them is settled", PATIENCE, async || {
        (served.api.count(&staying, "delivered").await == DUE).then_some(())
    })
    .await;
    assert_eq!(served.api.count(&dripping, "pending").await, DUE, "what drips has neither ended nor been given up");
    let endpoint = served.api.get(&format!("/v1/endpoints/{leaving}")).await;
    assert_eq!(endpoint["status"], "disabled", "{endpoint}");
    let asked = gone.request_count();
    assert!(asked <= SLOTS_OF_ONE, "one that is gone was asked {asked} times");
    eventually("the rest of its backlog stays where it is", PATIENCE, async || {
        (served.api.count(&leaving, "pending").await == DUE - asked).then_some(())
    })
    .await;
    assert_eq!(gone.request_count(), asked, "and was asked no more");
}
