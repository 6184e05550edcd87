//! What a Postgres has done, by its own books: rows and pages touched, and bytes of its log.
//!
//! A backend hands in its figures when it is idle, after a second or more, and when it ends. So what is to be counted is
//! done by a store of its own, whose connections are closed before the books are read.

use std::collections::BTreeMap;

use postrider_conformance::cluster::Cluster;
use postrider_conformance::wait::eventually;
use postrider_postgres::PostgresStore;
use postrider_promises::process::PATIENCE;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection, Row as _};

/// Reading is looking at what the books keep about each table, its indexes included.
const BOOKS: &str = "
select t.relname::text as name, t.seq_tup_read, coalesce(t.idx_tup_fetch, 0) as idx_tup_fetch, t.n_tup_ins, t.n_tup_upd,
       t.n_tup_hot_upd, t.n_tup_del,
       coalesce(p.heap_blks_hit + p.heap_blks_read, 0) + coalesce(p.idx_blks_hit + p.idx_blks_read, 0)
         + coalesce(p.toast_blks_hit + p.toast_blks_read, 0) as pages
from pg_stat_user_tables t join pg_statio_user_tables p using (relid)
where t.schemaname = 'postrider'";

/// What was done to one table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Table {
    /// Rows that were read one after the other, for want of an index.
    pub(crate) scanned: u64,
    /// Rows that an index has led to.
    pub(crate) fetched: u64,
    pub(crate) inserted: u64,
    pub(crate) updated: u64,
    /// Of these, those that left the indexes alone.
    pub(crate) updated_in_place: u64,
    pub(crate) deleted: u64,
    /// Pages looked at, of the table and its indexes.
    pub(crate) pages: u64,
}

/// What was done by a piece of work.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) tables: BTreeMap<String, Table>,
    /// Bytes of the write-ahead log.
    pub(crate) log_bytes: u64,
}

impl Done {
    /// Rows read in all tables.
    pub(crate) fn rows_read(&self) -> u64 {
        self.tables.values().map(|table| table.scanned + table.fetched).sum()
    }

    /// Rows read without an index, but for tables that are always small.
    pub(crate) fn rows_scanned(&self) -> u64 {
        let small = ["leases", "listeners", "meters"];
        self.tables.iter().filter(|(name, _)| !small.contains(&name.as_str())).map(|(_, table)| table.scanned).sum()
    }

    /// Rows written in all tables.
    pub(crate) fn rows_written(&self) -> u64 {
        self.tables.values().map(|table| table.inserted + table.updated + table.deleted).sum()
    }

    /// Pages looked at in all tables.
    pub(crate) fn pages(&self) -> u64 {
        self.tables.values().map(|table| table.pages).sum()
    }

    /// Updates that had to write to indexes as well.
    pub(crate) fn updates_of_indexes(&self) -> u64 {
        self.tables.values().map(|table| table.updated - table.updated_in_place).sum()
    }
}

/// A server of its own, which does nothing that it is not asked for.
#[derive(Debug)]
pub(crate) struct Observed {
    cluster: Cluster,
    connection: PgConnection,
}

impl Observed {
    pub(crate) async fn start() -> Self {
        // Vacuum and images of whole pages come when they like, and would be counted.
        let settings = ["autovacuum=off", "full_page_writes=off", "fsync=off", "bgwriter_lru_maxpages=0"];
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(&settings)).await.unwrap();
        let options: PgConnectOptions = cluster.url().parse().unwrap();
        let connection = options.application_name("observer").connect().await.unwrap();
        let observed = Self { cluster, connection };
        observed.store().await.migrate().await.unwrap();
        observed
    }

    async fn store(&self) -> PostgresStore {
        PostgresStore::connect(&self.cluster.url()).await.unwrap()
    }

    /// What is done by this work.
    pub(crate) async fn done_by<T>(&mut self, work: impl AsyncFnOnce(&PostgresStore) -> T) -> (Done, T) {
        let (before, log_before) = (self.books().await, self.log_position().await);
        let store = self.store().await;
        let value = work(&store).await;
        store.pool().close().await;
        drop(store);
        let log_bytes = self.log_position().await - log_before;
        let after = self.books().await;
        let since = |(name, now): (String, Table)| {
            let earlier = before.get(&name).copied().unwrap_or_default();
            let table = Table {
                scanned: now.scanned - earlier.scanned,
                fetched: now.fetched - earlier.fetched,
                inserted: now.inserted - earlier.inserted,
                updated: now.updated - earlier.updated,
                updated_in_place: now.updated_in_place - earlier.updated_in_place,
                deleted: now.deleted - earlier.deleted,
                pages: now.pages - earlier.pages,
            };
            (name, table)
        };
        (Done { tables: after.into_iter().map(since).collect(), log_bytes }, value)
    }

    /// Removes what nobody sees any more, as a server does by itself when it is left to.
    pub(crate) async fn tidy_up(&mut self) {
        sqlx::raw_sql("vacuum analyze").execute(&mut self.connection).await.unwrap();
    }

    /// The books, once everybody has handed in.
    async fn books(&mut self) -> BTreeMap<String, Table> {
        let connection = &mut self.connection;
        eventually("everybody else has gone", PATIENCE, async || {
            let others = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()";
            let count: i64 = sqlx::query_scalar(others).fetch_one(&mut *connection).await.unwrap();
            (count == 0).then_some(())
        })
        .await;
        let rows = sqlx::query(BOOKS).fetch_all(connection).await.unwrap();
        let read = |row: &sqlx::postgres::PgRow| {
            let count = |column: &str| u64::try_from(row.get::<i64, _>(column)).unwrap();
            let table = Table {
                scanned: count("seq_tup_read"),
                fetched: count("idx_tup_fetch"),
                inserted: count("n_tup_ins"),
                updated: count("n_tup_upd"),
                updated_in_place: count("n_tup_hot_upd"),
                deleted: count("n_tup_del"),
                pages: count("pages"),
            };
            (row.get("name"), table)
        };
        rows.iter().map(read).collect()
    }

    async fn log_position(&mut self) -> u64 {
        let position = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let position: i64 = sqlx::query_scalar(position).fetch_one(&mut self.connection).await.unwrap();
        u64::try_from(position).unwrap()
    }
}
