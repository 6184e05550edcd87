//! The arrows of the architecture: who depends on whom, and which words stay out of the engine and its stores.

use postrider_tests::cargo::{self, Package};
use postrider_tests::files::{self, TextFile};
use postrider_tests::words::{self, Exception};
use postrider_tests::{assert_none, graph, manifests, sql};

#[test]
fn the_engine_links_no_database_driver_and_no_web_framework() {
    let closure = cargo::normal_closure("postrider");
    assert!(closure.iter().any(|built| built.name == "hyper"), "the closure looks empty: {closure:?}");
    assert_none(&graph::engine_complaints(&closure));
}

#[test]
fn stores_stand_on_the_engine_and_crates_never_on_applications() {
    let metadata = cargo::metadata();
    let members: Vec<&Package> = metadata.packages.iter().filter(|package| package.source.is_none()).collect();
    assert_none(&graph::member_complaints(&members));
}

#[test]
fn every_member_takes_its_lints_licence_and_rust_version_from_the_workspace() {
    let files = files::text_files("");
    let members = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    assert_none(&members.flat_map(manifests::complaints).collect::<Vec<_>>());
}

/// What the applications on top are about is not known below.
#[test]
fn crates_do_not_know_what_the_applications_are_about() {
    const FORBIDDEN: &[&str] = &[
        "payment",
        "payments",
        "wallet",
        "merchant",
        "chaintx",
        "chain_tx",
        "chain_id",
        "blockchain",
        "gateway",
        "gateways",
        "pipeline",
        "pipelines",
        "rollout",
        "rollouts",
        "bytebase",
        "observatory",
    ];
    // HTTP's own names for two of its answers.
    const INNOCENT: &[&str] = &["bad gateway", "bad_gateway", "gateway timeout", "gateway_timeout"];
    const EXCEPTIONS: &[Exception] = &[Exception {
        path: "crates/postrider-conformance/src/cases/documents.rs",
        phrase: "gateway",
        reason: "an acceptance criterion names the topic on which dead letters are announced",
    }];
    assert_none(&words::complaints(&files::text_files("crates"), FORBIDDEN, INNOCENT, EXCEPTIONS));
}

#[test]
fn every_file_of_sql_is_used() {
    assert_none(&sql::unused_complaints(&files::text_files("crates")));
}

#[test]
fn both_stores_name_their_statements_alike() {
    // What Postgres does in one statement takes several on SQLite, where only a SELECT can stand in a WITH; those that
    // serve more than one purpose are not named after one.
    const EXCEPTIONS: &[(&str, &str)] = &[
        ("announce", "SQLite: a step of settle, recover and operate"),
        ("bury", "SQLite: a step of settle and recover"),
        ("consume_lease", "SQLite: a step of settle and release"),
        ("make_ready", "SQLite: a step of enqueue, release, recover, promote and retry"),
        ("schedule", "SQLite: a step of enqueue and settle"),
        ("release", "Postgres: one statement; on SQLite consume_lease and make_ready do it"),
        ("delivery", "Postgres: one by id; SQLite puts the condition into deliveries.sql"),
        ("endpoint", "SQLite: reads one endpoint at a time; Postgres reads one as it reads all those of a claim"),
        ("health", "Postgres: asks a server; SQLite looks at its own writer thread"),
        ("diagnose_leases", "Postgres: clocks and leases of several processes; a file of SQLite has one"),
        ("diagnose_server", "Postgres: the settings of a server; SQLite asks by pragma"),
        ("diagnose_tables", "Postgres: what vacuum has left undone; SQLite has none to look after"),
        ("publish_admission", "Postgres: for its functions; nobody enqueues into a file of SQLite but its process"),
        ("any_ready", "Postgres: whether a claim may find something, asked when a listener registers"),
        (
            "enqueue_one",
            "Postgres: what enqueue does for a list, at half the cost; SQLite writes event by event anyway",
        ),
        ("listen_no_more", "Postgres: a busy dispatcher need not be woken"),
        ("listen", "Postgres: dispatchers of other processes are woken; a file of SQLite has one process"),
        ("migrations_applied", "Postgres: SQLite keeps this statement in migrate.rs"),
        ("migrations_create", "Postgres: SQLite keeps this statement in migrate.rs"),
        ("migrations_lock", "Postgres: processes that start at once take turns by a lock of the database"),
        ("migrations_record", "Postgres: SQLite keeps this statement in migrate.rs"),
        ("migrations_recorded", "Postgres: SQLite keeps this statement in migrate.rs"),
    ];
    let postgres = files::text_files("crates/postrider-postgres/sql");
    let sqlite = files::text_files("crates/postrider-sqlite/sql");
    assert_none(&sql::name_complaints(&names(&postgres), &names(&sqlite), EXCEPTIONS));
}

/// The names of the files without folder and `.sql`.
fn names(files: &[TextFile]) -> Vec<&str> {
    files.iter().filter_map(|file| file.path.rsplit('/').next()?.strip_suffix(".sql")).collect()
}
