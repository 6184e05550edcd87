//! A Postgres of a test's own, for tests that stop it, fill its disk or use up its connections.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the folder with the programs of the Postgres to be used; `scripts/with-postgres` sets it.
pub const BINARIES_VARIABLE: &str = "POSTRIDER_TEST_POSTGRES_BINARIES";

/// A running server, removed with this value. It syncs to disk, unlike the one that other tests share.
#[derive(Debug)]
pub struct Cluster {
    folder: tempfile::TempDir,
    account: Option<Account>,
    port: u16,
    settings: Vec<String>,
}

/// Whose processes the server's are: it refuses to run as root.
#[derive(Debug, Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

/// How to stop it.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// Sessions are ended, and everything is written.
    Fast,
    /// Everything is abandoned on the spot; the next start recovers from the log.
    Immediate,
}

impl Cluster {
    /// Starts a server with these settings (`max_connections=20`) beyond the usual ones.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(Path::new("/tmp"), settings)
    }

    /// The same in a folder, such as a small file system, that the server's account may enter.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("postrider-cluster.").tempdir_in(parent).unwrap();
        let account = account(folder.path());
        if let Some(Account { user, group }) = account {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut cluster = Self { folder, account, port: 0, settings };
        let data = cluster.data();
        cluster.must(
            cluster.program("initdb").arg("--pgdata").arg(data).args(["--username=postgres", "--auth=trust"]).args([
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ]),
        );
        // A port that was free a moment ago may be taken; the server's own bind decides.
        let started = (0..20).any(|_| {
            cluster.port = free_port();
            cluster.try_start()
        });
        assert!(started, "Postgres did not start: {}", cluster.log());
        cluster
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of its first process, whose children the others are.
    pub fn pid(&self) -> u32 {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        text.lines().next().and_then(|line| line.parse().ok()).expect("its file begins with a number")
    }

    /// Stops it, and waits until it is gone.
    pub fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "--mode=fast",
            Stop::Immediate => "--mode=immediate",
        };
        self.must(self.program("pg_ctl").args(["stop", mode, "--silent", "--pgdata"]).arg(self.data()));
    }

    /// Starts it again, on the same port.
    pub fn start_again(&self) {
        assert!(self.try_start(), "Postgres did not start again: {}", self.log());
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs a statement by `psql`, and returns what it printed, without decoration.
    pub fn sql(&self, statement: &str) -> String {
        let output =
            self.program("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement, &self.url()]).output();
        let output = output.expect("psql can be started");
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn try_start(&self) -> bool {
        let mut settings =
            format!("-c listen_addresses=127.0.0.1 -p {} -k {}", self.port, self.folder.path().display());
        for setting in &self.settings {
            settings.push_str(" -c ");
            settings.push_str(setting);
        }
        let log = self.folder.path().join("log");
        let mut command = self.program("pg_ctl");
        command.args(["start", "--wait", "--timeout=60", "--silent", "--options", &settings, "--pgdata"]);
        command.arg(self.data()).arg("--log").arg(log);
        // The server would hold on to a pipe of this process.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("pg_ctl can be started").success()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(binaries().join(name));
        command.current_dir(self.folder.path()).env_remove("PGDATA");
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn must(&self, command: &mut Command) {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.data().join("postmaster.pid").exists() {
            let mut stop = self.program("pg_ctl");
            let _ = stop.args(["stop", "--mode=immediate", "--silent", "--pgdata"]).arg(self.data()).output();
        }
    }
}

/// What the variable says, or else the newest one of Debian.
fn binaries() -> PathBuf {
    if let Some(folder) = std::env::var_os(BINARIES_VARIABLE) {
        return PathBuf::from(folder);
    }
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = installed.filter(|folder| folder.join("bin/initdb").exists()).max_by_key(|folder| version(folder));
    let Some(newest) = newest else {
        panic!("found no Postgres under /usr/lib/postgresql; install it, or name its folder in {BINARIES_VARIABLE}")
    };
    newest.join("bin")
}

/// Root hands the server to the account `postgres`, or to `nobody` where there is none.
fn account(folder: &Path) -> Option<Account> {
    if std::fs::metadata(folder).unwrap().uid() != 0 {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some(Account { user: fields.next()??, group: fields.next()?? })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("there is an account without powers"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
