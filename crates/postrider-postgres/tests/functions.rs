//! The SQL functions do what the library does: the same rows, the same identities, the same refusals.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{AttemptResult, ClaimRequest, Operator, Settle};
use postrider::{
    Admission, DeliveryId, DestinationPolicy, EndpointSettings, Enqueued, EventId, NewEndpoint, NewEvent, OutcomeKind,
    Store, Verdict, WorkerId,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use serde_json::json;
use sqlx::types::Json;
use sqlx::{Executor, PgConnection, Row};
use uuid::Uuid;

const URL: &str = "https://hooks.example.com/";

/// Enqueues by the function what the event says.
async fn call(connection: &mut PgConnection, event: &NewEvent) -> Result<Option<Uuid>, sqlx::Error> {
    let statement = match event.once {
        None => "select postrider.enqueue($1, $2, $3, $4, $5, $6, $7, topic => $8)",
        Some(_) => "select postrider.enqueue_once($9, $1, $2, $3, $4, $5, $6, $7, topic => $8, generation => $10)",
    };
    let mut query = sqlx::query_scalar(statement)
        .bind(&event.event_type)
        .bind(std::str::from_utf8(&event.payload).unwrap())
        .bind(&event.destination_url)
        .bind(&event.tenant)
        .bind(&event.idempotency_key)
        .bind(event.deliver_at.map(jiff_sqlx::ToSqlx::to_sqlx))
        .bind(Json(&event.metadata))
        .bind(&event.topic);
    if let Some(once) = &event.once {
        let generation = once.generation.map(|generation| i64::try_from(generation).unwrap());
        query = query.bind(&once.subject).bind(generation);
    }
    query.fetch_one(connection).await
}

/// All that was written for an event, without its ids and times.
async fn written(store: &PostgresStore, id: Uuid) -> String {
    let text = "
        select jsonb_build_object(
          'event', (select to_jsonb(e) - 'id' - 'created_at' from postrider.events e where e.id = $1),
          'key', (select encode(k.fingerprint, 'hex') from postrider.idempotency_keys k where k.event_id = $1),
          'claim', (select to_jsonb(o) - 'event_id' - 'claimed_at' - 'subject' from postrider.once o where o.event_id = $1),
          'deliveries', (
            select jsonb_agg((to_jsonb(d) - 'id' - 'event_id' - 'created_at' - 'next_attempt_at') || jsonb_build_object(
              'waits', d.next_attempt_at - d.created_at > interval '1 minute',
              'is_due_at_once', d.next_attempt_at = d.created_at,
              'ready', (select jsonb_agg(r.lane) from postrider.ready r where r.delivery_id = d.id),
              'scheduled', (select jsonb_agg(jsonb_build_object('lane', s.lane, 'as_said', s.due_at = d.next_attempt_at))
                            from postrider.scheduled s where s.delivery_id = d.id)) order by d.id)
            from postrider.deliveries d where d.event_id = $1))::text";
    sqlx::query_scalar(text).bind(id).fetch_one(store.pool()).await.unwrap()
}

async fn endpoint(store: &PostgresStore, tenant: &str, types: &[&str]) {
    let new = NewEndpoint {
        tenant: tenant.to_owned(),
        url: DestinationPolicy::default().check_url("https://in.example.com/").unwrap(),
        event_types: types.iter().map(|text| text.parse().unwrap()).collect(),
        settings: EndpointSettings::default(),
    };
    store.create_endpoint(new, &Operator("anna".to_owned())).await.unwrap();
}

/// Each combination that matters, with texts of which SQL and Rust might think differently.
fn events() -> Vec<NewEvent> {
    // Postgres counts microseconds; what is finer cannot be said in SQL.
    let later = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap() + SignedDuration::from_hours(3);
    let plain = || NewEvent::new("order.placed", r#"{"b": 1,  "a":[1e400,"\u0000 \ud83d\ude00 é"],"a":null}"#);
    vec![
        plain(),
        plain().to("HTTPS://Hooks.Example.COM.:443/in?x=%20y#".trim_end_matches('#')),
        plain().to("http://hooks.example.com:8080?a='b'".replace('\'', "%27")),
        plain().to("https://8.8.8.8/a/b;c=[d]|e"),
        plain().to("https://[2606:4700:0000::1111]:0443/"),
        plain().tenant("acme"),
        plain().tenant("acme").topic("billing facts"),
        NewEvent::new("order", "1").tenant("acme"),
        NewEvent::new("orders.placed", "\"\\\\ud800\"").tenant("acme"),
        plain().tenant("acme").deliver_at(later),
        plain().to(URL).deliver_at(Timestamp::from_second(1_000_000).unwrap()),
        plain().to(URL).deliver_at("2031-02-03T04:05:06.789Z".parse().unwrap()),
        plain().to(URL).deliver_at("2031-02-03T04:05:06.000001Z".parse().unwrap()),
        plain().to(URL).metadata("order", 42).metadata("b", "x \"y\" \\ \n\u{1}\u{7f} é 😀").metadata("a", json!(null)),
        plain().to(URL).metadata("zz", json!({"é": [1, -2, {}, []], "a": {"bb": true, "c": false}})),
        plain().to(URL).metadata("f", json!([1.5, -0.25, 1.0, 123_456.789, 9_007_199_254_740_993_u64])),
        plain().to(URL).metadata("long", "x".repeat(400)),
    ]
}

#[tokio::test]
async fn the_same_rows_are_written_as_by_the_library() {
    let database = TestDatabase::create().await;
    let store = database.store();
    for (tenant, types) in [("acme", &["order.*"][..]), ("acme", &["*", "other"]), ("acme", &["order"]), ("b", &["*"])]
    {
        endpoint(&store, tenant, types).await;
    }
    let mut connection = store.pool().acquire().await.unwrap();
    for (number, event) in events().into_iter().enumerate() {
        let variants = [
            event.clone(),
            event.clone().idempotency_key("k"),
            event.clone().once("s"),
            event.idempotency_key("l").once_in("t", 1),
        ];
        for (variant, event) in variants.into_iter().enumerate() {
            let named = |way: &str| {
                let mut event = event.clone();
                event.idempotency_key = event.idempotency_key.map(|key| format!("{key}/{number}/{way}"));
                event
            };
            let reset = "delete from postrider.once";
            store.pool().execute(reset).await.unwrap();
            let by_library = store.enqueue(vec![named("library")]).await.unwrap().remove(0).event_id().unwrap();
            let expected = written(&store, by_library.as_uuid()).await;
            store.pool().execute(reset).await.unwrap();
            let by_function = call(&mut connection, &named("function")).await.unwrap().unwrap();
            assert_eq!(written(&store, by_function).await, expected, "event {number}, variant {variant}");
        }
    }
}

#[tokio::test]
async fn a_repeat_by_the_other_way_is_a_duplicate_and_other_content_a_conflict() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut connection = store.pool().acquire().await.unwrap();
    for (number, event) in events().into_iter().enumerate() {
        let event = event.idempotency_key(format!("library first {number}"));
        let first = store.enqueue(vec![event.clone()]).await.unwrap().remove(0).event_id().unwrap();
        assert_eq!(call(&mut connection, &event).await.unwrap(), Some(first.as_uuid()), "{event:?}");

        let event = event.idempotency_key(format!("function first {number}"));
        let first = EventId::from_uuid(call(&mut connection, &event).await.unwrap().unwrap());
        let repeated = store.enqueue(vec![event.clone()]).await.unwrap().remove(0);
        assert_eq!(repeated, Enqueued::Duplicate { event_id: first }, "{event:?}");

        for other in [
            NewEvent { payload: "{}".into(), ..event.clone() },
            event.clone().metadata("another", 1),
            event.clone().topic("another"),
            event.clone().once("another"),
            event.clone().deliver_at(Timestamp::from_second(77).unwrap()),
        ] {
            let error = call(&mut connection, &other).await.unwrap_err();
            let error = error.as_database_error().unwrap();
            assert_eq!((error.code().as_deref(), error.constraint()), (Some("PR030"), Some("idempotency_conflict")));
        }
        let elsewhere = call(&mut connection, &event.tenant("elsewhere")).await.unwrap();
        assert_ne!(elsewhere, Some(first.as_uuid()), "a key is its tenant's");
    }
    let claims: i64 = sqlx::query_scalar("select count(*) from postrider.once").fetch_one(store.pool()).await.unwrap();
    assert_eq!(claims, 0, "nobody has claimed anything who came too late");
}

#[tokio::test]
async fn a_literal_is_text_and_json_is_taken_as_it_is() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let stored = "with sent as materialized (select {} as id) select 1 from sent";
    for (arguments, expected) in [
        (r#"'a.b', '{"b":1,  "a":2}'"#, r#"{"b":1,  "a":2}"#),
        (r#"payload => '{"b":1,  "a":2}', event_type => 'a.b'"#, r#"{"b":1,  "a":2}"#),
        (r#"'a.b', '{"b":1,  "a":2}'::json"#, r#"{"b":1,  "a":2}"#),
        (r#"'a.b', '{"b":1,  "a":2}'::jsonb"#, r#"{"a": 2, "b": 1}"#),
        (r#"event_type => 'a.b', payload => '{"b":1,  "a":2}'::jsonb, tenant => 'acme'"#, r#"{"a": 2, "b": 1}"#),
    ] {
        for (name, subject) in [("enqueue", ""), ("enqueue_once", "subject => postrider.new_id()::text, ")] {
            // Positional arguments cannot follow named ones, so the subject of those goes first without its name.
            let subject = if arguments.contains("=>") { subject } else { subject.trim_start_matches("subject => ") };
            let called = format!("postrider.{name}({subject}{arguments})");
            sqlx::raw_sql(sqlx::AssertSqlSafe(stored.replace("{}", &called))).execute(store.pool()).await.unwrap();
            let last = "select convert_from(payload, 'UTF8') from postrider.events order by id desc limit 1";
            let payload: String = sqlx::query_scalar(last).fetch_one(store.pool()).await.unwrap();
            assert_eq!(payload, expected, "{called}");
        }
    }
}

fn settle(lease: postrider::Lease, verdict: Verdict) -> Settle {
    let attempt = AttemptResult {
        outcome: OutcomeKind::Response,
        status_code: Some(500),
        took: Duration::from_millis(5),
        started_ago: Duration::from_millis(6),
        response_excerpt: None,
        error_detail: Some("HTTP 500".to_owned()),
    };
    Settle { lease, verdict, attempt, disable_endpoint: false, disable_after: None }
}

/// A delivery in each state, by the name of the state.
async fn deliveries(store: &PostgresStore) -> Vec<(&'static str, DeliveryId)> {
    let worker = WorkerId::random();
    let mut made = Vec::new();
    for state in ["dead", "failed", "delivered", "leased", "cancelled", "ready", "scheduled"] {
        let mut event = NewEvent::new("a.b", "{}").to(format!("https://{state}.example.com/"));
        if state == "scheduled" {
            event = event.deliver_at(Timestamp::now() + SignedDuration::from_hours(1));
        }
        let id = store.enqueue(vec![event]).await.unwrap()[0].deliveries()[0].id;
        made.push((state, id));
        let verdict = match state {
            "dead" => Some(Verdict::Dead),
            "failed" => Some(Verdict::Retry { after: Duration::from_hours(1) }),
            "delivered" => Some(Verdict::Delivered),
            _ => None,
        };
        if verdict.is_some() || state == "leased" {
            let lease = Duration::from_mins(10);
            let request = ClaimRequest {
                worker: worker.clone(),
                lease,
                limit: 9,
                lane_limit: 9,
                in_flight: vec![],
                ahead: vec![],
                after: None,
            };
            let claims = store.claim(&request).await.unwrap().claims;
            assert_eq!(claims.len(), 1);
            if let Some(verdict) = verdict {
                store.settle(&worker, &[settle(claims[0].lease, verdict)]).await.unwrap();
            }
        } else if state == "cancelled" {
            store.cancel(id, "no", &Operator("anna".to_owned())).await.unwrap();
        }
    }
    made
}

/// How a delivery is, where it is, and what was said of it, without ids and times.
async fn standing(store: &PostgresStore, id: DeliveryId) -> String {
    let text = "
        select jsonb_build_object(
          'delivery', to_jsonb(d) - 'id' - 'event_id' - 'created_at' - 'next_attempt_at' - 'last_attempted_at',
          'places', jsonb_build_array(
            (select count(*) from postrider.ready x where x.delivery_id = d.id),
            (select count(*) from postrider.scheduled x where x.delivery_id = d.id),
            (select count(*) from postrider.leases x where x.delivery_id = d.id),
            (select count(*) from postrider.dead x where x.delivery_id = d.id),
            (select count(*) from postrider.cancelled x where x.delivery_id = d.id)),
          'told', (select jsonb_agg(jsonb_build_array(a.fact, a.attempt_count) order by a.position)
                   from postrider.announcements a where a.delivery_id = d.id),
          'audit', (select jsonb_agg(jsonb_build_array(a.tenant, a.action, a.reason) order by a.id)
                    from postrider.audit a where a.subject = d.id::text))::text
        from postrider.deliveries d where d.id = $1";
    sqlx::query_scalar(text).bind(id.as_uuid()).fetch_one(store.pool()).await.unwrap()
}

#[tokio::test]
async fn retry_and_cancel_do_what_an_operator_of_the_server_does() {
    let anna = Operator("anna".to_owned());
    for (statement, retries) in
        [("select postrider.retry($1)", true), ("select postrider.cancel($1, 'no more')", false)]
    {
        let (one, other) = (TestDatabase::create().await, TestDatabase::create().await);
        let (library, functions) = (one.store(), other.store());
        let pairs = deliveries(&library).await.into_iter().zip(deliveries(&functions).await);
        for ((state, by_library), (_, by_function)) in pairs {
            let action = if retries {
                library.retry(by_library, &anna).await.unwrap()
            } else {
                library.cancel(by_library, "no more", &anna).await.unwrap()
            };
            let done: bool =
                sqlx::query_scalar(statement).bind(by_function.as_uuid()).fetch_one(functions.pool()).await.unwrap();
            assert_eq!(done, action == postrider::store::Action::Done, "{statement} of {state}");
            assert_eq!(
                standing(&functions, by_function).await,
                standing(&library, by_library).await,
                "{statement} of {state}"
            );
        }
        let nobody: bool =
            sqlx::query_scalar(statement).bind(Uuid::now_v7()).fetch_one(functions.pool()).await.unwrap();
        assert!(!nobody);
        let who: String = sqlx::query_scalar("select distinct operator from postrider.audit where operator <> 'anna'")
            .fetch_one(functions.pool())
            .await
            .unwrap();
        assert_eq!(who, "sql:postgres");
    }
}

#[tokio::test]
async fn the_views_show_what_the_server_shows() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let made = deliveries(&store).await;
    let expected = store.overview(None).await.unwrap();
    let row = sqlx::query("select * from postrider.overview").fetch_one(store.pool()).await.unwrap();
    let number = |name: &str| u64::try_from(row.get::<i64, _>(name)).unwrap();
    assert_eq!(
        (number("pending"), number("failed"), number("dead")),
        (expected.pending, expected.failed, expected.dead)
    );
    assert_eq!((number("delivered"), number("cancelled")), (expected.delivered, expected.cancelled));
    let places = (expected.due, expected.in_flight, expected.scheduled);
    assert_eq!((number("due"), number("in_flight"), number("scheduled")), places);
    assert_eq!(expected.due, 1);
    let last = expected.last_minute;
    let rates = (number("delivered_per_minute"), number("failed_per_minute"), number("dead_per_minute"));
    assert_eq!(rates, (last.delivered, last.failed, last.dead));
    assert_eq!(rates, (1, 1, 1));
    let aged: bool = sqlx::query_scalar("select oldest_due_age > '0' from postrider.overview")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert!(aged);

    let dead = sqlx::query("select * from postrider.dead_letters").fetch_all(store.pool()).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].get::<Uuid, _>("delivery_id"), made[0].1.as_uuid());
    assert_eq!(dead[0].get::<String, _>("event_type"), "a.b");
    assert_eq!(dead[0].get::<String, _>("error_detail"), "HTTP 500");
    assert_eq!(dead[0].get::<i32, _>("attempt_count"), 1);
}

#[tokio::test]
async fn what_a_transaction_takes_back_was_never_there() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut transaction = store.pool().begin().await.unwrap();
    let event = NewEvent::new("a.b", "{}").to(URL).idempotency_key("k").once("s");
    assert!(call(&mut transaction, &event).await.unwrap().is_some());
    assert_eq!(call(&mut transaction, &NewEvent::new("a.b", "{}").once("s")).await.unwrap(), None);
    transaction.rollback().await.unwrap();
    for table in ["events", "deliveries", "ready", "idempotency_keys", "once"] {
        let count = sqlx::AssertSqlSafe(format!("select count(*) from postrider.{table}"));
        assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(store.pool()).await.unwrap(), 0, "{table}");
    }
    let mut connection = store.pool().acquire().await.unwrap();
    assert!(call(&mut connection, &event).await.unwrap().is_some());
}

#[tokio::test]
async fn subjects_have_generations() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut connection = store.pool().acquire().await.unwrap();
    let event = NewEvent::new("a.b", "{}").to(URL);
    assert_eq!(call(&mut connection, &event.clone().once_in("s", 2)).await.unwrap(), None, "not begun yet");
    let first = call(&mut connection, &event.clone().once("s")).await.unwrap().unwrap();
    assert_eq!(call(&mut connection, &NewEvent::new("c.d", "{}").once("s")).await.unwrap(), None, "whatever its type");
    assert!(call(&mut connection, &event.clone().once("s").tenant("acme")).await.unwrap().is_some());
    let reset = "select postrider.reset_once('s')";
    assert_eq!(sqlx::query_scalar::<_, i64>(reset).fetch_one(&mut *connection).await.unwrap(), 2);
    assert_eq!(call(&mut connection, &event.clone().once_in("s", 1)).await.unwrap(), None, "a straggler");
    let second = call(&mut connection, &event.clone().once_in("s", 2)).await.unwrap().unwrap();
    let row = sqlx::query("select * from postrider.once('s')").fetch_one(&mut *connection).await.unwrap();
    assert_eq!((row.get::<i64, _>("generation"), row.get::<Uuid, _>("event_id")), (2, second));
    assert_eq!(row.get::<String, _>("event_type"), "a.b");
    let claim = store.once("default", "s").await.unwrap().unwrap();
    assert_eq!((claim.generation, claim.winner.unwrap().event_id.as_uuid()), (2, second));
    let past: Uuid = sqlx::query_scalar("select event_id from postrider.past_generations")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    assert_eq!(past, first);
    assert_eq!(
        sqlx::query_scalar::<_, i64>("select postrider.reset_once('new')").fetch_one(&mut *connection).await.unwrap(),
        2
    );
    let nothing =
        sqlx::query("select * from postrider.once('unheard of')").fetch_optional(&mut *connection).await.unwrap();
    assert!(nothing.is_none());
}

/// Who had won goes with the events of its time; that the time is over does not.
#[tokio::test]
async fn generations_that_are_over_go_with_retention_and_the_current_one_stays() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut connection = store.pool().acquire().await.unwrap();
    let event = NewEvent::new("a.b", "{}");
    for generation in 2..=4_i64 {
        assert!(call(&mut connection, &event.clone().once("s")).await.unwrap().is_some());
        let next: i64 =
            sqlx::query_scalar("select postrider.reset_once('s')").fetch_one(&mut *connection).await.unwrap();
        assert_eq!(next, generation);
    }
    let winner = call(&mut connection, &event.clone().once("s")).await.unwrap().unwrap();
    let past = "select count(*) from postrider.past_generations";
    store.retain(Duration::from_secs(3_600), None, 100).await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, i64>(past).fetch_one(&mut *connection).await.unwrap(), 3, "too young to go");
    assert_eq!(store.retain(Duration::ZERO, None, 100).await.unwrap().events, 4, "none of them has a delivery");
    assert_eq!(sqlx::query_scalar::<_, i64>(past).fetch_one(&mut *connection).await.unwrap(), 0);

    let row = sqlx::query("select * from postrider.once('s')").fetch_one(&mut *connection).await.unwrap();
    assert_eq!((row.get::<i64, _>("generation"), row.get::<Uuid, _>("event_id")), (4, winner));
    for late in [event.clone().once("s"), event.clone().once_in("s", 1), event.once_in("s", 4)] {
        assert_eq!(call(&mut connection, &late).await.unwrap(), None, "{:?}", late.once);
    }
}

#[tokio::test]
async fn a_function_wakes_only_who_listens() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut listener = sqlx::postgres::PgListener::connect_with(store.pool()).await.unwrap();
    listener.listen("postrider_ready").await.unwrap();
    let mut connection = store.pool().acquire().await.unwrap();
    call(&mut connection, &NewEvent::new("a.b", "{}").to(URL)).await.unwrap();
    let register = "insert into postrider.listeners values (postrider.new_id(), 'ready', now() + interval '1 hour')";
    store.pool().execute(register).await.unwrap();
    call(&mut connection, &NewEvent::new("a.b", "{}")).await.unwrap();
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    call(&mut connection, &NewEvent::new("a.b", "{}").to(URL).deliver_at(later)).await.unwrap();
    connection.execute("select pg_notify('postrider_ready', 'nobody was told before')").await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "nobody was told before");
    call(&mut connection, &NewEvent::new("a.b", "{}").to(URL)).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "", "somebody listens, and there is something to do");
}

#[tokio::test]
async fn a_store_with_rules_leaves_them_for_the_functions() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut connection = store.pool().acquire().await.unwrap();
    let inside = NewEvent::new("a.b", "{}").to("http://127.0.0.1:9000/");
    assert!(call(&mut connection, &inside).await.is_err());
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap();
    let rules = Admission { destinations, max_payload_bytes: 10, bare_destinations: true };
    store.clone().with_admission(rules.clone()).migrate().await.unwrap();
    assert!(call(&mut connection, &inside).await.unwrap().is_some());
    assert!(call(&mut connection, &inside.clone().to("http://localhost:9000/")).await.unwrap().is_some());
    let long = NewEvent { payload: "\"a long text\"".into(), ..inside.clone() };
    let error = call(&mut connection, &long).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("PR011"));
    store.migrate().await.unwrap();
    assert!(call(&mut connection, &inside).await.unwrap().is_some(), "a store without rules changes nothing");

    store.clone().with_admission(Admission { bare_destinations: false, ..rules }).migrate().await.unwrap();
    let error = call(&mut connection, &inside).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("PR022"));
    assert!(call(&mut connection, &NewEvent::new("a.b", "{}")).await.is_ok(), "endpoints have secrets of their own");
}
