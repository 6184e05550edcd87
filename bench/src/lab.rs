//! What a scenario works with: a database of its own, receivers, and the command line as processes that are measured.

use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use postrider::{Admission, DestinationPolicy, NewEvent, Store};
use postrider_conformance::cluster::Cluster;
use postrider_postgres::PostgresStore;
use postrider_sqlite::SqliteStore;
use sqlx::PgPool;

use crate::Failure;
use crate::cost::Meter;
use crate::sink::{Arrivals, Receivers, Sink};

/// How long nothing may arrive before a scenario gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// With this variable this program is the command line, so that what is measured is what is released.
pub(crate) const AS_POSTRIDER: &str = "POSTRIDER_BENCH_AS_POSTRIDER";

const SECRET_KEY: &str = "dGhlIHNlY3JldCBrZXkgb2YgYWxsIGJlbmNobWFya3M=";
const SIGNING_SECRET: &str = "whsec_dGhlIHNpZ25pbmcgc2VjcmV0IG9mIGJlbmNobWFya3M=";

/// On which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::Postgres, Self::Sqlite];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "Postgres",
            Self::Sqlite => "SQLite",
        }
    }
}

/// A database, and receivers.
pub(crate) struct Lab {
    // Processes end before the folder that they work in.
    pub(crate) sink: Sink,
    pub(crate) store: Arc<dyn Store>,
    /// For statements of a scenario's own, on Postgres.
    pub(crate) pool: Option<PgPool>,
    /// Whom to trust, where receivers speak TLS.
    pub(crate) authority: Option<PathBuf>,
    cluster: Option<Cluster>,
    folder: tempfile::TempDir,
    pub(crate) database: String,
}

impl Lab {
    /// With so many destinations to deliver to.
    pub(crate) async fn new(kind: Kind, destinations: usize) -> Result<Self, Failure> {
        Self::with(kind, Receivers::new(destinations)).await
    }

    /// The same with destinations that speak TLS.
    pub(crate) async fn with_tls(kind: Kind, destinations: usize) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let authority = Some(folder.path().join("authority.pem"));
        Self::within(folder, kind, Receivers { authority, ..Receivers::new(destinations) }).await
    }

    /// The same with destinations that answer like that.
    pub(crate) async fn with(kind: Kind, receivers: Receivers) -> Result<Self, Failure> {
        Self::within(tempfile::tempdir()?, kind, receivers).await
    }

    async fn within(folder: tempfile::TempDir, kind: Kind, receivers: Receivers) -> Result<Self, Failure> {
        let sink = Sink::start(&receivers)?;
        let authority = receivers.authority;
        let admission = Admission { destinations: loopback()?, ..Admission::default() };
        Ok(match kind {
            Kind::Postgres => {
                let cluster = Cluster::start(&["max_connections=200"]);
                let database = cluster.url();
                let store = PostgresStore::connect(&database).await?.with_admission(admission);
                store.migrate().await?;
                let (pool, cluster) = (Some(store.pool().clone()), Some(cluster));
                Self { sink, store: Arc::new(store), pool, authority, cluster, folder, database }
            }
            Kind::Sqlite => {
                let file = folder.path().join("bench.db");
                let database = format!("sqlite://{}", file.display());
                let store = SqliteStore::open(file)?.with_admission(admission);
                store.migrate().await?;
                Self { sink, store: Arc::new(store), pool: None, authority, cluster: None, folder, database }
            }
        })
    }

    fn command(&self, arguments: &[&str]) -> Result<Command, Failure> {
        Ok(self.prepared(Command::new(env::current_exe()?), arguments))
    }

    fn prepared(&self, mut command: Command, arguments: &[&str]) -> Command {
        command.args(arguments).current_dir(self.folder.path()).env_clear().env(AS_POSTRIDER, "yes");
        command.env("POSTRIDER_DATABASE", &self.database);
        command.env("POSTRIDER_ALLOWED_NETWORKS", "127.0.0.0/8");
        command.env("POSTRIDER_SIGNING_SECRET", SIGNING_SECRET);
        command.env("POSTRIDER_SECRET_KEY", SECRET_KEY);
        // On a machine that is busy with other things, every statement is slow.
        command.env("POSTRIDER_LOG", "warn,sqlx=error");
        if let Some(file) = &self.authority {
            command.env("SSL_CERT_FILE", file);
        }
        command
    }

    /// Starts `dispatch` or `serve` on this database.
    pub(crate) fn start(&self, arguments: &[&str]) -> Result<Measured, Failure> {
        let process = if arguments.first() == Some(&"serve") { "serve" } else { "dispatcher" };
        Measured::start(process, &mut self.command(arguments)?)
    }

    /// Starts a dispatcher as the program that another one looks at.
    pub(crate) fn dispatch_under(&self, mut other: Command) -> Result<Measured, Failure> {
        other.arg(env::current_exe()?);
        Measured::start("dispatcher", &mut self.prepared(other, &["dispatch"]))
    }

    /// Runs a command that prints JSON to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<serde_json::Value, Failure> {
        let output = self.command(arguments)?.output()?;
        if !output.status.success() {
            return Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Where files of this lab's own go. It is removed with the lab.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Measures what the database server and the receivers cost from now on.
    pub(crate) fn meter(&self) -> Result<Meter, Failure> {
        Ok(Meter::new(self.cluster.as_ref().map(Cluster::pid), self.sink.pid())?)
    }

    /// How large the database is: each table with its indexes, or the file with its log.
    pub(crate) async fn sizes(&self) -> Result<Vec<(String, u64)>, Failure> {
        let Some(pool) = &self.pool else {
            let file = std::fs::metadata(self.folder.path().join("bench.db"))?.len();
            let log = std::fs::metadata(self.folder.path().join("bench.db-wal")).map_or(0, |log| log.len());
            return Ok(vec![("file".to_owned(), file), ("log".to_owned(), log)]);
        };
        let sizes: Vec<(String, i64)> = sqlx::query_as(
            "select relname::text, pg_total_relation_size(oid) from pg_class \
             where relnamespace = 'postrider'::regnamespace and relkind = 'r' order by relname",
        )
        .fetch_all(pool)
        .await?;
        Ok(sizes.into_iter().map(|(name, size)| (name, u64::try_from(size).unwrap_or(0))).collect())
    }

    /// Enqueues so many events of one kilobyte each, spread over the destinations, and lets the database rest.
    pub(crate) async fn fill(&self, events: usize) -> Result<(), Failure> {
        self.enqueue(events, &payload(1000), None).await?;
        self.rest().await
    }

    /// Enqueues so many events in lists, spread over the destinations, at once or for later.
    pub(crate) async fn enqueue(&self, events: usize, body: &Bytes, at: Option<Timestamp>) -> Result<(), Failure> {
        // Lists of about a megabyte.
        let step = (1_000_000 / body.len().max(1000)).max(1);
        for first in (0..events).step_by(step) {
            let event = |number: usize| {
                let event =
                    NewEvent::new("bench.event", body.clone()).to(&self.sink.urls[number % self.sink.urls.len()]);
                match at {
                    Some(at) => event.deliver_at(at),
                    None => event,
                }
            };
            let list = (first..events.min(first + step)).map(event);
            self.store.enqueue(list.collect()).await?;
        }
        Ok(())
    }

    /// Does now what a database would do some time after a bulk load, since that is not what is measured.
    pub(crate) async fn rest(&self) -> Result<(), Failure> {
        if let Some(pool) = &self.pool {
            sqlx::query("vacuum analyze").execute(pool).await?;
            sqlx::query("checkpoint").execute(pool).await?;
        }
        Ok(())
    }

    /// Waits until so many requests have come, or no more do, and returns what has.
    pub(crate) async fn arrived(&mut self, count: usize) -> Result<Arrivals, Failure> {
        let (mut most, mut deadline) = (0, Instant::now() + PATIENCE);
        loop {
            let arrived = self.sink.count()?;
            if arrived > most {
                (most, deadline) = (arrived, Instant::now() + PATIENCE);
            }
            if arrived >= count || Instant::now() > deadline {
                return Ok(self.sink.take()?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A process of the command line, or of a peer.
pub(crate) struct Measured {
    /// `dispatcher`, `serve` or `worker`.
    pub(crate) process: &'static str,
    child: Child,
}

impl Measured {
    pub(crate) fn start(process: &'static str, command: &mut Command) -> Result<Self, Failure> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
        Ok(Self { process, child })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it to stop, and waits for its end.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err("the process did not stop when told to".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// JSON of about so many bytes.
pub(crate) fn payload(bytes: usize) -> Bytes {
    Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(bytes.saturating_sub(11))))
}

pub(crate) fn loopback() -> Result<DestinationPolicy, Failure> {
    Ok(DestinationPolicy::default().allow_networks(["127.0.0.0/8"])?)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn per_second(count: usize, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

/// Seconds for a thousand of `count`.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn per_thousand(seconds: f64, count: usize) -> f64 {
    seconds * 1000.0 / count as f64
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
pub(crate) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
