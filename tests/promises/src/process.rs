//! The command line as a process: started, signalled, read.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use postrider_conformance::wait::eventually;
use serde_json::Value;

use crate::canary;

/// How long anything may take before a test fails. Generous: machines that run tests are busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A folder to work in, and the variables of everything that runs there.
#[derive(Debug)]
pub struct Workplace {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Workplace {
    /// With loopback open, and the canaries for secrets. `database` is a URL of Postgres or a path.
    pub fn on(database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = Vec::new();
        Self { folder, variables }
            .with("POSTRIDER_DATABASE", database)
            .with("POSTRIDER_ALLOWED_NETWORKS", "127.0.0.0/8")
            .with("POSTRIDER_SIGNING_SECRET", canary::SIGNING_SECRET)
            .with("POSTRIDER_SECRET_KEY", canary::SECRET_KEY)
    }

    /// With a file of SQLite in the folder itself.
    pub fn on_sqlite() -> Self {
        Self::on("sqlite://postrider.db")
    }

    /// With one more variable; a later value replaces an earlier one.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The file of SQLite.
    pub fn sqlite_file(&self) -> PathBuf {
        self.path().join("postrider.db")
    }

    /// A command of `postrider` that has not been started.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(binary());
        command.current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("USER", "tester").env("COLUMNS", "100").env("HOSTNAME", "test-host");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(arguments);
        command
    }

    /// Starts a command that goes on until it is told to stop.
    pub fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        Running::start(self.command(arguments))
    }

    /// Runs a command to its end, and returns its exit code and what it printed on standard output.
    pub fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> (Option<i32>, String) {
        let output = self.command(arguments).output().expect("the binary can be started");
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        must_be_clean(&stderr);
        (output.status.code(), stdout)
    }

    /// Runs a command that prints JSON, and succeeds.
    pub fn json<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Value {
        let (code, text) = self.run(arguments.into_iter().chain(["--json"]));
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("it prints JSON: {error}: {text}"))
    }
}

/// Where cargo put the command line under trial: beside the tests' folder, and beside `soak`.
fn binary() -> PathBuf {
    let this = std::env::current_exe().expect("a process has a file");
    let folder = this.parent().unwrap();
    let folder = if folder.ends_with("deps") { folder.parent().unwrap() } else { folder };
    folder.join("postrider-on-trial")
}

#[track_caller]
fn must_be_clean(text: &str) {
    let shown = canary::shown_in(text);
    // What is shown is not repeated: this text ends up in a log, too.
    assert!(
        shown.is_empty(),
        "{} secrets or payloads were printed by a process, the first of them {:?}",
        shown.len(),
        shown[0]
    );
}

/// A process and what it has printed so far. It is killed when the value is dropped, and what it printed is then
/// searched for what must not be printed.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command and reads what it prints, both streams together.
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} can be started: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![
            follow(child.stdout.take().unwrap(), Arc::clone(&lines)),
            follow(child.stderr.take().unwrap(), Arc::clone(&lines)),
        ];
        Self { child, lines, readers }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `KILL`, `STOP` or `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.unwrap().success(), "the process is there to be told");
    }

    /// Waits for a line that satisfies a condition.
    pub async fn line(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let find = async || self.lines.lock().unwrap().iter().find(|line| condition(line)).cloned();
        eventually(what, PATIENCE, find).await
    }

    /// Waits for a line of JSON that satisfies a condition.
    pub async fn json_line(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let line = self.line(what, |line| parse(line).is_some_and(|value| condition(&value))).await;
        parse(&line).unwrap()
    }

    /// How many lines satisfy a condition by now.
    pub fn count(&self, condition: impl Fn(&str) -> bool) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| condition(line)).count()
    }

    /// Everything printed by now.
    pub fn text(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Whether it has ended by itself, and how.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the end, and returns the exit code (none when a signal ended it) and everything printed.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let status = eventually("the end of the process", PATIENCE, async || self.child.try_wait().unwrap()).await;
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (status.code(), self.text())
    }

    /// Kills it, as a power failure would.
    pub async fn killed(self) {
        self.signal("KILL");
        self.ended().await;
    }

    /// Tells it to stop, and waits until it has. Returns everything printed.
    pub async fn stopped(self) -> String {
        self.signal("TERM");
        let (code, text) = self.ended().await;
        assert_eq!(code, Some(0), "{text}");
        text
    }
}

fn follow(pipe: impl std::io::Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            lines.lock().unwrap().push(line.expect("everything printed is UTF-8"));
        }
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be stopped, and a stopped process dies of nothing else.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        if !std::thread::panicking() {
            must_be_clean(&self.text());
        }
    }
}
