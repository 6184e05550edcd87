//! Who may call the SQL functions, what a hostile caller can do with them, and what many callers at once do.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use postrider::{Enqueued, NewEvent, Store};
use postrider_conformance::wait::within;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection};
use tokio::task::JoinSet;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

/// A role of its own, and a connection as that role. Roles belong to the server, so that they are dropped at the end.
struct Role {
    name: String,
    connection: PgConnection,
}

impl Role {
    async fn create(database: &TestDatabase) -> Self {
        let name = format!("postrider_test_{}", Uuid::new_v4().simple());
        run(&database.store(), &format!("create role {name} login")).await;
        let options: PgConnectOptions = database.url().parse().unwrap();
        let connection = options.username(&name).connect().await.unwrap();
        Self { name, connection }
    }

    async fn run(&mut self, statement: &str) -> Result<(), String> {
        let done = self.connection.execute(AssertSqlSafe(statement.to_owned())).await;
        done.map(|_| ()).map_err(|error| error.as_database_error().unwrap().code().unwrap().into_owned())
    }

    async fn drop(self, store: &PostgresStore) {
        run(store, &format!("drop owned by {0}; drop role {0}", self.name)).await;
    }
}

async fn run(store: &PostgresStore, statement: &str) {
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(store.pool()).await.unwrap();
}

async fn count(store: &PostgresStore, what: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from {what}"))).fetch_one(store.pool()).await.unwrap()
}

const DENIED: &str = "42501";

#[tokio::test]
async fn a_role_may_do_what_it_was_granted_and_nothing_else() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut role = Role::create(&database).await;
    let enqueue = [
        "select postrider.enqueue('a.b', '{}', 'https://hooks.example.com/')",
        "select postrider.enqueue('a.b', '{}'::jsonb, idempotency_key => 'k')",
        "select postrider.enqueue('a.b', '{}'::json)",
        "select postrider.enqueue_once('s', 'a.b', '{}')",
        "select postrider.enqueue_once('t', 'a.b', '{}'::json)",
        "select postrider.enqueue_once('u', 'a.b', '{}'::jsonb)",
        "select postrider.reset_once('s')",
        "select * from postrider.once('s')",
    ];
    let operate = [
        "select postrider.cancel('01900000-0000-7000-8000-000000000000', 'no')",
        "select postrider.retry('01900000-0000-7000-8000-000000000000')",
        "select * from postrider.overview",
        "select * from postrider.dead_letters",
    ];
    let denied = async |role: &mut Role, statements: &[&str]| {
        for statement in statements {
            assert_eq!(role.run(statement).await, Err(DENIED.to_owned()), "{statement}");
        }
    };
    let allowed = async |role: &mut Role, statements: &[&str]| {
        for statement in statements {
            assert_eq!(role.run(statement).await, Ok(()), "{statement}");
        }
    };
    denied(&mut role, &enqueue).await;
    denied(&mut role, &operate).await;
    let name = role.name.clone();
    assert_eq!(role.run(&format!("call postrider.grant_to('{name}')")).await, Err(DENIED.to_owned()));

    // By hand, as the documentation says: one function, and only that.
    let only = "postrider.enqueue(text, text, text, text, text, timestamptz, jsonb, text)";
    run(&store, &format!("grant usage on schema postrider to {name}; grant execute on function {only} to {name}"))
        .await;
    allowed(&mut role, &enqueue[..1]).await;
    denied(&mut role, &enqueue[1..]).await;

    run(&store, &format!("call postrider.grant_to('{name}')")).await;
    allowed(&mut role, &enqueue).await;
    denied(&mut role, &operate).await;
    run(&store, &format!("call postrider.grant_to('{name}', operate => true)")).await;
    allowed(&mut role, &operate).await;
    assert_eq!(role.run(&format!("call postrider.grant_to('{name}')")).await, Err(DENIED.to_owned()));

    let tables: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c where c.relnamespace = 'postrider'::regnamespace
         and c.relkind = 'r'",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    assert!(tables.len() > 15);
    denied(&mut role, &["select * from postrider.delivery_lines"]).await;
    for table in tables {
        denied(&mut role, &[&format!("select * from postrider.{table}"), &format!("delete from postrider.{table}")])
            .await;
    }
    let inner: Vec<String> = sqlx::query_scalar(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'postrider'::regnamespace
         and not p.proname = any ('{enqueue,enqueue_once,once,reset_once,retry,cancel}')
         and has_function_privilege($1, p.oid, 'execute')",
    )
    .bind(&name)
    .fetch_all(store.pool())
    .await
    .unwrap();
    assert_eq!(inner, Vec::<String>::new(), "what is behind is nobody's");
    let who: String =
        sqlx::query_scalar("select distinct operator from postrider.audit").fetch_one(store.pool()).await.unwrap();
    assert_eq!(who, format!("sql:{name}"));

    run(&store, &format!("call postrider.revoke_from('{name}')")).await;
    denied(&mut role, &enqueue).await;
    denied(&mut role, &operate).await;
    role.drop(&store).await;
}

/// What a later migration adds is open to everybody unless it says otherwise, and finds whatever its caller's path has.
#[tokio::test]
async fn everything_says_what_it_is_and_nothing_is_open_by_accident() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let listed = async |what: &str, condition: &str| {
        let statement = format!("{what} and {condition} order by 1");
        sqlx::query_scalar::<_, String>(AssertSqlSafe(statement)).fetch_all(store.pool()).await.unwrap()
    };
    let routines = "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'postrider'::regnamespace";
    let relations = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'postrider'::regnamespace
                     and c.relkind in ('r', 'v')";
    let nothing = Vec::<String>::new();
    assert_eq!(listed(routines, "obj_description(p.oid, 'pg_proc') is null").await, nothing);
    assert_eq!(listed(relations, "obj_description(c.oid, 'pg_class') is null").await, nothing);
    assert_eq!(listed(routines, "has_function_privilege('public', p.oid, 'execute')").await, nothing);
    assert_eq!(
        listed(relations, "has_table_privilege('public', c.oid, 'select, insert, update, delete')").await,
        nothing
    );
    let loose = "(p.prosecdef or p.prokind = 'p')
                 and p.proconfig is distinct from array['search_path=pg_catalog, pg_temp']";
    assert_eq!(listed(routines, loose).await, nothing);
    assert!(listed(routines, "p.prosecdef").await.len() >= 10);
}

/// Whatever a caller can create and set must not be found by functions that run with the owner's rights.
#[tokio::test]
async fn a_hostile_caller_cannot_put_anything_under_the_functions() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut role = Role::create(&database).await;
    run(&store, &format!("call postrider.grant_to('{0}', true); grant create on schema public to {0}", role.name))
        .await;
    let database_name: String = sqlx::query_scalar("select current_database()").fetch_one(store.pool()).await.unwrap();
    run(&store, &format!("grant temporary on database {database_name} to {}", role.name)).await;
    let trap = "returns text language plpgsql as $$ begin raise exception 'caught as %', current_user; end $$";
    for place in ["public", "pg_temp"] {
        for signature in [
            "lower(text)",
            "octet_length(text)",
            "length(text)",
            "substr(text, int)",
            "strpos(text, text)",
            "left(text, int)",
            "starts_with(text, text)",
            "format(text, text)",
            "convert_to(text, text)",
            "new_id()",
            "clock_timestamp()",
            "statement_timestamp()",
            "sha256(bytea)",
            "accept()",
            "refuse(text, text, text, text, text)",
            "pg_notify(text, text)",
            "to_char(timestamp, text)",
            "int8send(bigint)",
            "host(inet)",
        ] {
            role.run(&format!("create function {place}.{signature} {trap}")).await.unwrap();
        }
    }
    let tables = [
        "events",
        "deliveries",
        "ready",
        "scheduled",
        "idempotency_keys",
        "once",
        "admission",
        "listeners",
        "dead",
        "endpoints",
    ];
    for table in tables {
        role.run(&format!("create temporary table {table} (like pg_class)")).await.unwrap();
    }
    role.run("create function public.differs(text, text) returns boolean language plpgsql as $$ begin raise exception 'caught'; end $$")
        .await
        .unwrap();
    for operator in ["=", "<>", "~", "!~", "||"] {
        let made =
            format!("create operator public.{operator} (leftarg = text, rightarg = text, function = public.differs)");
        role.run(&made).await.unwrap();
    }
    for setting in [
        "search_path = pg_temp, public, pg_catalog",
        "standard_conforming_strings = off",
        "datestyle = 'German, DMY'",
        "timezone = 'Asia/Kathmandu'",
        "bytea_output = 'escape'",
        "extra_float_digits = -15",
        "intervalstyle = 'iso_8601'",
        "quote_all_identifiers = on",
        "transform_null_equals = on",
        "lc_numeric = 'C'",
    ] {
        role.run(&format!("set {setting}")).await.unwrap();
    }
    let event = NewEvent::new("a.b", r#"{"a":"\ud83d\ude00"}"#)
        .to("https://Hooks.Example.com/")
        .idempotency_key("k")
        .metadata("a", serde_json::json!([1.5, "x"]))
        .deliver_at("2031-02-03T04:05:06.5Z".parse().unwrap());
    let call = "select pg_catalog.concat(postrider.enqueue('a.b'::text, $x${\"a\":\"\\ud83d\\ude00\"}$x$::text,
      'https://Hooks.Example.com/', idempotency_key => 'k', metadata => '{\"a\":[1.5,\"x\"]}', deliver_at => '2031-02-03T04:05:06.5Z'))";
    role.run(call).await.unwrap();
    let repeated = store.enqueue(vec![event]).await.unwrap().remove(0);
    assert!(matches!(repeated, Enqueued::Duplicate { .. }), "a caller's settings change nothing: {repeated:?}");
    role.run("select postrider.enqueue_once('s', 'a.b', '{}', 'https://hooks.example.com/')").await.unwrap();
    role.run("select postrider.reset_once('s')").await.unwrap();
    role.run("select * from postrider.once('s')").await.unwrap();
    role.run("select * from postrider.overview").await.unwrap();
    assert_eq!(role.run("select postrider.enqueue('a.b', '[')").await, Err("PR012".to_owned()));
    assert_eq!(role.run("select postrider.enqueue('a.b', $x$\"\\ud800\"$x$)").await, Err("PR012".to_owned()));
    assert_eq!(role.run("select postrider.enqueue('a.b', '{}', 'http://127.0.0.1/')").await, Err("PR021".to_owned()));
    let id: Uuid = sqlx::query_scalar("select delivery_id from postrider.ready").fetch_one(store.pool()).await.unwrap();
    role.run(&format!("select postrider.cancel('{id}', 'no'), postrider.retry('{id}')")).await.unwrap();
    assert_eq!((count(&store, "postrider.events").await, count(&store, "postrider.deliveries").await), (2, 2));
    role.drop(&store).await;
}

/// Racers by SQL and by the library, over several connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_of_fifty_racers_by_both_ways_one_wins_in_each_generation() {
    let database = TestDatabase::create().await;
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(PostgresStore::connect(database.url()).await.unwrap());
    }
    for generation in 1..=3_i64 {
        let mut racers = JoinSet::new();
        for number in 0..50 {
            let store = stores[number % 5].clone();
            racers.spawn(async move {
                let event = NewEvent::new("plan.done", "{}").to("https://hooks.example.com/").once("plan/1");
                if number % 2 == 0 {
                    let enqueued = store.enqueue(vec![event]).await.unwrap().remove(0);
                    return matches!(enqueued, Enqueued::New { .. });
                }
                let call = "select postrider.enqueue_once('plan/1', 'plan.done', '{}', 'https://hooks.example.com/')";
                sqlx::query_scalar::<_, Option<Uuid>>(call).fetch_one(store.pool()).await.unwrap().is_some()
            });
        }
        let won = racers.join_all().await.into_iter().filter(|won| *won).count();
        assert_eq!(won, 1, "generation {generation}");
        let next: i64 =
            sqlx::query_scalar("select postrider.reset_once('plan/1')").fetch_one(stores[0].pool()).await.unwrap();
        assert_eq!(next, generation + 1);
    }
    let store = &stores[0];
    assert_eq!((count(store, "postrider.events").await, count(store, "postrider.past_generations").await), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_callers_with_one_key_all_get_the_same_event() {
    let database = TestDatabase::create().await;
    let mut callers = JoinSet::new();
    for number in 0..50 {
        let store = database.store();
        callers.spawn(async move {
            if number % 2 == 0 {
                let event = NewEvent::new("a.b", "{}").idempotency_key("k");
                return store.enqueue(vec![event]).await.unwrap().remove(0).event_id().unwrap().as_uuid();
            }
            let call = "select postrider.enqueue('a.b', '{}', idempotency_key => 'k')";
            sqlx::query_scalar::<_, Uuid>(call).fetch_one(store.pool()).await.unwrap()
        });
    }
    let mut ids = callers.join_all().await;
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(count(&database.store(), "postrider.events").await, 1);
}

/// Waits until a session of this database waits for a lock.
async fn until_waiting(store: &PostgresStore) {
    let waiting = "pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let reached = async {
        while count(store, waiting).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("somebody waits for a lock", PATIENCE, reached).await;
}

/// A statement that is cut short in the middle of a function has done nothing, and nobody has to clean up after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_cut_short_leaves_nothing_behind() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut role = Role::create(&database).await;
    run(&store, &format!("call postrider.grant_to('{}')", role.name)).await;
    let mut holder = store.pool().begin().await.unwrap();
    holder.execute("select postrider.enqueue_once('s', 'a.b', '{}')").await.unwrap();
    holder.execute("select postrider.enqueue('a.b', '{}', idempotency_key => 'k')").await.unwrap();
    let calls = [
        "select postrider.enqueue_once('s', 'a.b', '{}')",
        "select postrider.reset_once('s')",
        "select postrider.enqueue('a.b', '{}', idempotency_key => 'k')",
        // Claims a subject of its own before it waits for the key.
        "select postrider.enqueue_once('t', 'a.b', '{}', idempotency_key => 'k')",
    ];
    for (setting, state) in [("statement_timeout", "57014"), ("lock_timeout", "55P03")] {
        role.run(&format!("set {setting} = '50ms'")).await.unwrap();
        for call in calls {
            assert_eq!(role.run(call).await, Err(state.to_owned()), "{setting}: {call}");
        }
        role.run(&format!("reset {setting}")).await.unwrap();
    }
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut role.connection).await.unwrap();
    let (ended, ()) = tokio::join!(role.run(calls[3]), async {
        until_waiting(&store).await;
        run(&store, &format!("select pg_terminate_backend({pid})")).await;
    });
    assert_eq!(ended, Err("57P01".to_owned()), "told by the server that ends the session");
    holder.rollback().await.unwrap();
    for table in ["events", "once", "idempotency_keys", "past_generations", "audit"] {
        assert_eq!(count(&store, &format!("postrider.{table}")).await, 0, "{table}");
    }

    let options: PgConnectOptions = database.url().parse().unwrap();
    role.connection = options.username(&role.name).connect().await.unwrap();
    for call in &calls[..3] {
        assert_eq!(role.run(call).await, Ok(()), "{call}");
    }
    assert_eq!(role.run(calls[3]).await, Err("PR030".to_owned()), "the key belongs to another now");
    assert_eq!((count(&store, "postrider.events").await, count(&store, "postrider.once").await), (2, 1));
    role.drop(&store).await;
}

/// Who has claimed a subject and then finds the key taken has claimed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_loses_its_key_is_taken_back() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let call = "select postrider.enqueue_once($1, 'a.b', '{}', idempotency_key => 'k', generation => $2)";
    for (subject, generation) in [("unheard of", None), ("reset before", Some(2_i64))] {
        run(&store, "delete from postrider.idempotency_keys; delete from postrider.once; select postrider.reset_once('reset before')").await;
        let mut first = store.pool().begin().await.unwrap();
        // Another subject under the same key: other content, but this one must not know before it has the claim.
        let winner: Uuid =
            sqlx::query_scalar(call).bind("another").bind(None::<i64>).fetch_one(&mut *first).await.unwrap();
        let second = tokio::spawn({
            let store = store.clone();
            async move {
                let mut transaction = store.pool().begin().await.unwrap();
                let sent = sqlx::query_scalar::<_, Option<Uuid>>(call)
                    .bind(subject)
                    .bind(generation)
                    .fetch_one(&mut *transaction)
                    .await;
                (
                    sent.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned(),
                    transaction.rollback().await.unwrap(),
                )
            }
        });
        until_waiting(&store).await;
        first.commit().await.unwrap();
        assert_eq!(within("the second", PATIENCE, second).await.unwrap().0, "PR030");
        let claims: Vec<Uuid> = sqlx::query_scalar("select event_id from postrider.once where event_id is not null")
            .fetch_all(store.pool())
            .await
            .unwrap();
        assert_eq!(claims, [winner]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_comes_while_the_first_is_under_way_takes_its_claim_back_and_gets_the_first() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let call = "select postrider.enqueue_once('s', 'a.b', '{}', idempotency_key => 'k')";
    // The first one's claim is moved aside, as if it had been made in another order: key first.
    let mut first = store.pool().begin().await.unwrap();
    let winner: Uuid = sqlx::query_scalar(call).fetch_one(&mut *first).await.unwrap();
    first.execute("update postrider.once set subject = 'aside' where subject = 's'").await.unwrap();
    let second = tokio::spawn({
        let store = store.clone();
        async move { sqlx::query_scalar::<_, Option<Uuid>>(call).fetch_one(store.pool()).await.unwrap() }
    });
    until_waiting(&store).await;
    first.commit().await.unwrap();
    assert_eq!(within("the second", PATIENCE, second).await.unwrap(), Some(winner));
    assert_eq!(count(&store, "postrider.once where subject = 's'").await, 0, "the claim was taken back");
    assert_eq!(count(&store, "postrider.events").await, 1);
}

#[tokio::test]
async fn a_transaction_that_cannot_see_who_has_the_key_is_told_to_repeat() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut transaction = store.pool().begin_with("begin isolation level repeatable read").await.unwrap();
    transaction.execute("select count(*) from postrider.events").await.unwrap();
    let call = "select postrider.enqueue('a.b', '{}', idempotency_key => 'k')";
    store.pool().execute(call).await.unwrap();
    let error = transaction.execute(call).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("40001"));
}
