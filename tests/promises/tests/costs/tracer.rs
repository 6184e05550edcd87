//! What the writer of an SQLite store carries out, as SQLite itself traces it.
//!
//! A store lends its one writing connection to an application's transactions, and so to a test, which leaves a trace on
//! it. From then on every statement is seen when it is done, with the steps that SQLite's machine took for it: they are
//! to SQLite what instructions are to a processor, and the same in every run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use postrider::StoreError;
use postrider_sqlite::SqliteStore;
use rusqlite::StatementStatus;
use rusqlite::trace::{StmtRef, TraceEvent, TraceEventCodes};

/// What was counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traced {
    /// Statements, without those that begin and end transactions.
    pub(crate) statements: u64,
    /// Statements that were prepared for this one time.
    pub(crate) prepared: u64,
    pub(crate) commits: u64,
    /// How often the log was brought to the disk.
    pub(crate) syncs: u64,
    /// Steps of SQLite's machine.
    pub(crate) steps: u64,
    /// Of these, steps from one row of a table to the next, for want of an index.
    pub(crate) scan_steps: u64,
    /// Bytes of the log.
    pub(crate) log_bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    traced: Traced,
    /// Up to where the counters of each statement have been read. They grow for as long as it stays prepared.
    counters: HashMap<String, [u64; 2]>,
}

thread_local! {
    /// The writer's thread is its store's own, so what it sees is that store's.
    static SEEN: RefCell<Option<Arc<Mutex<Seen>>>> = const { RefCell::new(None) };
}

/// The trace of a store's writer.
#[derive(Debug)]
pub(crate) struct Tracer {
    store: SqliteStore,
    seen: Arc<Mutex<Seen>>,
    log: std::path::PathBuf,
}

impl Tracer {
    /// Follows the writer of the store on this file.
    pub(crate) async fn follow(store: &SqliteStore, file: &Path) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let own = Arc::clone(&seen);
        let install = store.transaction(move |transaction| {
            SEEN.with(|seen| *seen.borrow_mut() = Some(own));
            transaction.connection().trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(saw));
            Ok::<_, StoreError>(())
        });
        install.await.unwrap();
        Self { store: store.clone(), seen, log: format!("{}-wal", file.display()).into() }
    }

    /// What is carried out by this work. The log must not be moved into the file meanwhile.
    pub(crate) async fn traced<T>(&self, work: impl AsyncFnOnce() -> T) -> (Traced, T) {
        let (before, syncs) = (self.log_bytes(), self.store.log_syncs());
        self.seen.lock().unwrap().traced = Traced::default();
        let value = work().await;
        let traced = std::mem::take(&mut self.seen.lock().unwrap().traced);
        let syncs = self.store.log_syncs() - syncs;
        (Traced { log_bytes: self.log_bytes() - before, syncs, ..traced }, value)
    }

    /// How many commits the work under way has made by now.
    pub(crate) fn commits(&self) -> u64 {
        self.seen.lock().unwrap().traced.commits
    }

    /// Moves the log into the file, and begins it anew.
    pub(crate) fn move_log(&self) {
        let file = self.log.display().to_string();
        let connection = rusqlite::Connection::open(file.trim_end_matches("-wal")).unwrap();
        let busy: i64 = connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 0, "nobody else uses the file meanwhile");
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |file| file.len())
    }
}

fn saw(event: TraceEvent<'_>) {
    let TraceEvent::Profile(statement, _) = event else { return };
    SEEN.with(|seen| {
        if let Some(seen) = &*seen.borrow() {
            seen.lock().unwrap().count(&statement);
        }
    });
}

impl Seen {
    fn count(&mut self, statement: &StmtRef<'_>) {
        let text = statement.sql();
        let word = text.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        match word.as_str() {
            "commit" => self.traced.commits += 1,
            "pragma" | "begin" | "savepoint" | "release" | "rollback" => {}
            _ => self.traced.statements += 1,
        }
        let counter = |status| u64::try_from(statement.get_status(status)).unwrap_or_default();
        let now = [counter(StatementStatus::VmStep), counter(StatementStatus::FullscanStep)];
        let is_fresh = counter(StatementStatus::Run) <= 1;
        let before = self.counters.insert(text.into_owned(), now).filter(|_| !is_fresh).unwrap_or_default();
        self.traced.prepared += u64::from(is_fresh);
        self.traced.steps += now[0].saturating_sub(before[0]);
        self.traced.scan_steps += now[1].saturating_sub(before[1]);
    }
}
