//! `schema.sql` is what the migrations come to. A change of the schema shows in it, for people to read.

use std::path::Path;

use postrider_postgres::testing::TestDatabase;

const BLESS_VARIABLE: &str = "POSTRIDER_BLESS";

#[tokio::test]
async fn the_migrations_come_to_what_schema_sql_shows() {
    let database = TestDatabase::create().await;
    let parts: Vec<(String, String)> =
        sqlx::query_as(include_str!("catalog/dump.sql")).fetch_all(database.store().pool()).await.unwrap();
    let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
    let found = format!(
        "-- What the migrations come to, as the database's catalog says. Not run: a test compares it, and writes it anew\n\
         -- when {BLESS_VARIABLE} is 1.\n\n{}",
        texts.join("\n")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.sql");
    if std::env::var(BLESS_VARIABLE).is_ok_and(|value| value == "1") {
        std::fs::write(&path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, golden, "the schema changed; look at the difference, and set {BLESS_VARIABLE}=1 to accept it");
}

#[tokio::test]
async fn ids_are_uuids_of_version_7_that_sort_as_they_were_made() {
    let database = TestDatabase::create().await;
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select postrider.new_id() from generate_series(1, 1000)")
        .fetch_all(database.store().pool())
        .await
        .unwrap();
    let now = jiff::Timestamp::now().as_second();
    for id in &ids {
        assert_eq!(id.get_version_num(), 7, "{id}");
        assert_eq!(id.get_variant(), uuid::Variant::RFC4122, "{id}");
        let (seconds, _) = id.get_timestamp().unwrap().to_unix();
        assert!(i64::try_from(seconds).unwrap().abs_diff(now) < 60, "{id} says {seconds}, it is {now}");
    }
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
    let milliseconds = |id: &uuid::Uuid| id.as_u128() >> 80;
    assert!(ids.is_sorted_by_key(milliseconds), "the clock did not go back, so neither did the ids");
}
