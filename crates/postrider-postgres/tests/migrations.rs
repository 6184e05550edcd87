//! Migrations: any number of starts at once, and never a guess about a schema that is not known.

use postrider::store::Operator;
use postrider::{DeliveryId, NewEvent, Store, StoreErrorCode, WorkerId};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;

const ALL: [&str; 7] =
    ["0001_places", "0002_server", "0003_admission", "0004_functions", "0005_views", "0006_bounds", "0007_announced"];

#[tokio::test]
async fn eight_stores_that_start_at_once_migrate_once() {
    let database = TestDatabase::create_empty().await;
    let mut starts = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = database.url().to_owned();
        starts.spawn(async move { PostgresStore::connect(&url).await.unwrap().migrate().await.unwrap() });
    }
    let applied: Vec<String> = starts.join_all().await.into_iter().flatten().collect();
    assert_eq!(applied, ALL, "one of them applied it, the others found it applied");
    assert_eq!(database.store().pending_migrations().await.unwrap(), Vec::<String>::new());
    database.store().check_schema().await.unwrap();
}

#[tokio::test]
async fn an_empty_database_is_told_apart_from_a_migrated_one() {
    let database = TestDatabase::create_empty().await;
    let store = database.store();
    assert_eq!(store.pending_migrations().await.unwrap(), ALL);
    let error = store.check_schema().await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Schema);
    assert!(error.message.contains("0001_places") && error.message.contains("postrider migrate"), "{error}");
    let error = store.start_dispatching(&WorkerId::random()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Schema);
}

#[tokio::test]
async fn a_statement_on_an_empty_database_says_what_to_run() {
    let database = TestDatabase::create_empty().await;
    let id = DeliveryId::from_uuid(uuid::Uuid::now_v7());
    let error = database.store().retry(id, &Operator("anna".to_owned())).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Schema);
    assert!(error.message.contains("postrider migrate"), "{error}");
}

#[tokio::test]
async fn a_migration_with_another_text_is_refused_and_nothing_is_touched() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let altered = "update postrider.migrations set sha256 = sha256('edited') where version = 1";
    sqlx::query(altered).execute(store.pool()).await.unwrap();
    for error in [store.migrate().await.unwrap_err(), store.check_schema().await.unwrap_err()] {
        assert_eq!(error.code, StoreErrorCode::Schema);
        assert!(error.message.contains("0001_places") && error.message.contains("another text"), "{error}");
    }
}

#[tokio::test]
async fn a_migration_from_a_newer_program_is_refused() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let newer = "insert into postrider.migrations (version, name, sha256) values (9000, 'later', sha256('later'))";
    sqlx::query(newer).execute(store.pool()).await.unwrap();
    for error in [store.migrate().await.unwrap_err(), store.check_schema().await.unwrap_err()] {
        assert_eq!(error.code, StoreErrorCode::Schema);
        assert!(error.message.contains("9000_later") && error.message.contains("newer"), "{error}");
    }
}

/// A text that cannot be written would be tried to be written for ever.
#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused_by_name() {
    let server = TestDatabase::create_empty().await;
    for (encoding, is_refused) in [("LATIN1", true), ("SQL_ASCII", false)] {
        let name = format!("postrider_test_encoding_{}", uuid::Uuid::new_v4().simple());
        let create = format!("create database {name} encoding '{encoding}' template template0 locale 'C'");
        sqlx::query(sqlx::AssertSqlSafe(create)).execute(server.store().pool()).await.unwrap();
        let options: sqlx::postgres::PgConnectOptions = server.url().parse().unwrap();
        let pool = sqlx::PgPool::connect_with(options.database(&name)).await.unwrap();
        let store = PostgresStore::from_pool(pool.clone());
        if is_refused {
            let error = store.migrate().await.unwrap_err();
            assert_eq!(error.code, StoreErrorCode::Schema);
            assert!(error.message.contains("LATIN1") && error.message.contains("encoding 'UTF8'"), "{error}");
        } else {
            store.migrate().await.unwrap();
            let call = "select postrider.enqueue('a.b', $1, metadata => $2::text::jsonb)";
            let text = "{\"a\":\"é😀\"}";
            let id: uuid::Uuid = sqlx::query_scalar(call).bind(text).bind(text).fetch_one(&pool).await.unwrap();
            let event = store.event(postrider::EventId::from_uuid(id)).await.unwrap().unwrap();
            assert_eq!((event.payload.as_ref(), event.metadata["a"].as_str()), (text.as_bytes(), Some("é😀")));
            let broken = "select postrider.enqueue('a.b', '{}', metadata => convert_from('\\x7b2261223a22ff227d', 'SQL_ASCII')::jsonb)";
            let error = sqlx::query(broken).execute(&pool).await.unwrap_err();
            assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("22021"), "{error}");
        }
        pool.close().await;
        let drop = format!("drop database {name} with (force)");
        sqlx::query(sqlx::AssertSqlSafe(drop)).execute(server.store().pool()).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_relies_on_the_search_path() {
    let database = TestDatabase::create().await;
    let options: sqlx::postgres::PgConnectOptions = database.url().parse().unwrap();
    let pool = sqlx::PgPool::connect_with(options.options([("search_path", "pg_catalog")])).await.unwrap();
    let store = PostgresStore::from_pool(pool);
    let enqueued = store.enqueue(vec![NewEvent::new("a.b", "{}").to("https://hooks.example.com/")]).await.unwrap();
    assert!(store.event(enqueued[0].event_id().unwrap()).await.unwrap().is_some());
}
