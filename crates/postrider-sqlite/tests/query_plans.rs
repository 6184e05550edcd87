//! No statement on the path of a delivery reads a table from end to end: the cost of a claim, a settle or a promotion
//! does not depend on how much has been delivered, is waiting, or is scheduled.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::path::Path;

use postrider_sqlite::rusqlite::{Connection, StatementStatus};
use postrider_sqlite::testing::TestDatabase;

/// Statements that do read a whole table, and why they may.
const MAY_SCAN: &[(&str, &str)] = &[
    // Few keys, and a diagnosis may take a while.
    ("create_key.sql", "SCAN postrider_api_keys"),
    ("diagnose_endpoints.sql", "SCAN postrider_endpoints"),
    // Newest first, with a limit; a tenant's own are found by their index.
    ("audit.sql", "SCAN postrider_audit"),
    ("endpoints.sql", "SCAN postrider_endpoints"),
    ("events.sql", "SCAN e USING INDEX sqlite_autoindex_postrider_events_1"),
    // By an index of the removed ones.
    ("retain_endpoints.sql", "SCAN postrider_endpoints USING INDEX postrider_endpoints_removed"),
    ("cancel_removed_endpoints.sql", "SCAN postrider_endpoints USING INDEX postrider_endpoints_removed"),
    // As many rows as there are deliveries in flight.
    ("recover.sql", "SCAN postrider_leases"),
    ("recover_left_behind.sql", "SCAN postrider_leases"),
    // The first rows of its key, with a limit.
    ("retain_announcements.sql", "SCAN postrider_announcements"),
    // Operators' bulk retries begin at the places, which are small beside the history.
    ("retry_matching.sql", "SCAN postrider_dead_letters"),
    ("retry_matching.sql", "SCAN postrider_scheduled"),
    ("retry_matching.sql", "SCAN postrider_deliveries USING COVERING INDEX postrider_deliveries_cancelled"),
    ("deliveries.sql", "SCAN d"),
    // As many rows as a page may look at, and no more.
    ("deliveries_floor.sql", "SCAN p"),
    ("events_floor.sql", "SCAN p USING COVERING INDEX sqlite_autoindex_postrider_events_1"),
    ("deliveries_dead.sql", "SCAN p"),
    ("deliveries_dead_floor.sql", "SCAN p"),
    ("deliveries_cancelled.sql", "SCAN d USING INDEX postrider_deliveries_cancelled"),
    ("deliveries_cancelled_floor.sql", "SCAN p USING COVERING INDEX postrider_deliveries_cancelled"),
    ("deliveries_unsettled_count.sql", "SCAN postrider_ready"),
    ("deliveries_unsettled_count.sql", "SCAN postrider_scheduled"),
    ("deliveries_unsettled_count.sql", "SCAN postrider_leases"),
    ("deliveries_unsettled_count.sql", "SCAN (subquery"),
    // Only when those have counted no more than that.
    ("deliveries_unsettled.sql", "SCAN postrider_ready"),
    ("deliveries_unsettled.sql", "SCAN postrider_scheduled"),
    ("deliveries_unsettled.sql", "SCAN postrider_leases"),
    // SQLite's own list of counters: one row for each table that has one.
    ("announcements_end.sql", "SCAN sqlite_sequence"),
    // Counting is reading.
    ("count_deliveries.sql", "SCAN d"),
    ("overview.sql", "SCAN r"),
    ("overview.sql", "SCAN s"),
    ("overview.sql", "SCAN l"),
    ("overview.sql", "SCAN unsettled"),
    ("overview_settled.sql", "SCAN l"),
    ("overview_settled.sql", "SCAN d USING INDEX postrider_deliveries_cancelled"),
    ("overview_settled.sql", "SCAN d USING COVERING INDEX postrider_deliveries_by_tenant"),
];

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("explain query plan {sql}")).unwrap();
    let count = statement.parameter_count();
    let nothing = postrider_sqlite::rusqlite::params_from_iter(std::iter::repeat_n(None::<i64>, count));
    statement.query_map(nothing, |row| row.get("detail")).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_but_those_that_may() {
    let database = TestDatabase::create().await;
    let connection = Connection::open(database.path()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut seen = 0;
    let mut unused = MAY_SCAN.to_vec();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let sql = std::fs::read_to_string(&path).unwrap();
        assert!(sql.starts_with("-- "), "{name} says first why it is shaped so");
        for line in plan(&connection, &sql.replace("{conditions}", "true")) {
            let is_this = |(file, step): &(&str, &str)| *file == name && line.starts_with(step);
            let may = MAY_SCAN.iter().any(is_this);
            unused.retain(|exception| !is_this(exception));
            assert!(!line.starts_with("SCAN") || line == "SCAN CONSTANT ROW" || may, "{name}: {line}");
        }
        seen += 1;
    }
    assert!(seen > 40, "the statements were found");
    assert!(unused.is_empty(), "exceptions that nobody needs: {unused:#?}");
}

#[tokio::test]
async fn filters_are_served_by_their_indexes() {
    let database = TestDatabase::create().await;
    let connection = Connection::open(database.path()).unwrap();
    let listing = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/deliveries.sql")).unwrap();
    for (conditions, index) in [
        ("true and d.tenant = :tenant", "SEARCH d USING INDEX postrider_deliveries_by_tenant (tenant=?)"),
        ("true and d.tenant = :tenant and d.id < :after", "postrider_deliveries_by_tenant (tenant=? AND id<?)"),
        ("true and d.endpoint_id = :endpoint", "postrider_deliveries_by_endpoint (endpoint_id=?)"),
        ("true and d.event_id = :event", "postrider_deliveries_by_event (event_id=?)"),
        (
            "true and d.tenant = :tenant and d.status = 'delivered' and d.id < :after and d.id >= :floor",
            "postrider_deliveries_by_tenant (tenant=? AND id>? AND id<?)",
        ),
        ("true and d.id < :after and d.id >= :floor", "SEARCH d USING PRIMARY KEY (id>? AND id<?)"),
        ("true and d.created_at >= :since and d.id >= :first", "SEARCH d USING PRIMARY KEY (id>?)"),
    ] {
        let plan = plan(&connection, &listing.replace("{conditions}", conditions));
        assert!(plan[0].contains(index), "{conditions}: {plan:#?}");
    }
}

#[tokio::test]
async fn what_a_server_lists_is_served_by_its_indexes() {
    let database = TestDatabase::create().await;
    let connection = Connection::open(database.path()).unwrap();
    for (name, conditions, index) in [
        ("events", "true and e.tenant = :tenant", "postrider_events_by_tenant (tenant=?)"),
        ("events", "true and e.tenant = :tenant and e.id < :after", "postrider_events_by_tenant (tenant=? AND id<?)"),
        ("events", "true and e.created_at >= :since and e.id >= :first", "sqlite_autoindex_postrider_events_1 (id>?)"),
        ("endpoints", "true and tenant = :tenant and id < :after", "postrider_endpoints_by_tenant (tenant=? AND id<?)"),
        ("audit", "true and tenant = :tenant and id < :after", "postrider_audit_by_tenant (tenant=? AND id<?)"),
        (
            "deliveries_floor",
            "true and p.tenant = :tenant and p.id < :after",
            "COVERING INDEX postrider_deliveries_by_tenant (tenant=? AND id<?)",
        ),
        (
            "deliveries_floor",
            "true and p.endpoint_id = :endpoint and p.id < :after",
            "postrider_deliveries_by_endpoint (endpoint_id=? AND id<?)",
        ),
        (
            "events_floor",
            "true and p.tenant = :tenant and p.id < :after",
            "COVERING INDEX postrider_events_by_tenant (tenant=? AND id<?)",
        ),
        (
            "deliveries_dead",
            "true and p.delivery_id < :after and p.delivery_id >= :floor",
            "SEARCH p USING PRIMARY KEY (delivery_id>? AND delivery_id<?)",
        ),
        (
            "deliveries_cancelled",
            "true and d.tenant = :tenant and d.id < :after and d.id >= :floor",
            "postrider_deliveries_cancelled (id>? AND id<?)",
        ),
        ("once_next", "", "SEARCH postrider_once USING PRIMARY KEY ((tenant,subject)>(?,?))"),
        ("once", "", "SEARCH postrider_once USING PRIMARY KEY (tenant=? AND subject=?)"),
        ("retain_once", "", "SEARCH postrider_once USING PRIMARY KEY (tenant=? AND subject=? AND generation=?)"),
        ("key_of_digest", "", "sqlite_autoindex_postrider_api_keys_2 (digest=?)"),
        ("cancel_removed_deliveries", "", "postrider_deliveries_by_endpoint (endpoint_id=? AND id<?)"),
        ("overview_last_minute", "", "USING INTEGER PRIMARY KEY (rowid>?)"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("sql/{name}.sql"));
        let plan = plan(&connection, &std::fs::read_to_string(path).unwrap().replace("{conditions}", conditions));
        assert!(plan[0].contains(index), "{name} where {conditions}: {plan:#?}");
        assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{name} where {conditions}: {plan:#?}");
    }
}

/// A lane of 100,000 costs a claim no more than a lane of one.
#[tokio::test]
async fn stepping_over_a_lane_does_not_read_it() {
    let database = TestDatabase::create().await;
    let mut connection = Connection::open(database.path()).unwrap();
    let transaction = connection.transaction().unwrap();
    for (lane, rows) in [("a", 100_000), ("b", 1), ("c", 1)] {
        let fill = "with recursive n (n) as (select 1 union all select n + 1 from n where n < ?2)
                    insert into postrider_ready select ?1, n, randomblob(16) from n";
        transaction.execute(fill, (lane, rows)).unwrap();
    }
    transaction.commit().unwrap();
    let sql = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/claim_next_lane.sql")).unwrap();
    let mut statement = connection.prepare(&sql).unwrap();
    for (after, lane) in [("", "a"), ("a", "b"), ("b", "c")] {
        let found: String = statement.query_row([after], |row| row.get(0)).unwrap();
        assert_eq!(found, lane);
        let steps = statement.reset_status(StatementStatus::VmStep);
        assert!(steps < 50, "{steps} steps from `{after}` to `{lane}`");
    }
}
