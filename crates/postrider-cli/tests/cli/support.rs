//! Runs `postrider` in an empty folder and an empty environment, so that nothing of the machine leaks into a test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before the test fails. Generous: machines that run tests are busy.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Opens loopback, for commands that send to a receiver of the test.
pub(crate) const LOOPBACK: (&str, &str) = ("POSTRIDER_ALLOWED_NETWORKS", "127.0.0.0/8");

/// Encrypts secrets at rest, in every test that does not look at just that.
pub(crate) const SECRET_KEY: &str = "dGhlIHNlY3JldCBrZXkgb2YgYWxsIHRlc3RzLCAzMiE=";

/// A folder to work in, and the variables of everything that runs there.
pub(crate) struct Workplace {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// With a signing secret and open loopback, as the first steps of the README have it.
    pub(crate) fn ready_to_send() -> Self {
        let secret = Self::new().run(["sign", "--new-secret"]).succeeds().stdout.trim().to_owned();
        Self::new()
            .with(LOOPBACK.0, LOOPBACK.1)
            .with("POSTRIDER_SIGNING_SECRET", &secret)
            .with("POSTRIDER_SECRET_KEY", SECRET_KEY)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("USER", "tester").env("COLUMNS", "100").env("HOSTNAME", "test-host");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Done {
        self.run_with_input(arguments, "")
    }

    /// The same, with something on standard input.
    pub(crate) fn run_with_input<'a>(&self, arguments: impl IntoIterator<Item = &'a str>, input: &str) -> Done {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let mut stdin = child.stdin.take().unwrap();
        // A command that does not read its input may be gone already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let stdout = drain(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take().unwrap());
        let code = wait(&mut child);
        Done { code, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }

    /// Runs a script of a shell that finds the binary on its path.
    pub(crate) fn shell(&self, script: &str) -> Done {
        let mut command = Command::new("sh");
        let binary = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
        command.args(["-c", script]).current_dir(self.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", binary.display()));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let output = command.output().expect("there is a shell");
        let text = |bytes| String::from_utf8(bytes).expect("everything printed is UTF-8");
        Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs a command that prints JSON, and succeeds.
    pub(crate) fn json<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Value {
        let arguments: Vec<&str> = arguments.into_iter().chain(["--json"]).collect();
        let done = self.run(arguments.iter().copied()).succeeds();
        serde_json::from_str(&done.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?} prints JSON: {error}: {done:?}"))
    }

    /// Starts a command that goes on until it is told to stop.
    pub(crate) fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Running {
        let mut command = self.command();
        command.args(arguments);
        Running::start(command)
    }

    /// Waits until a JSON command's answer satisfies a condition, and returns that answer.
    pub(crate) fn until<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let answer = self.json(arguments.iter().copied());
            if condition(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{what}: still {answer:#}");
        }
    }
}

impl Done {
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// It ended with this exit code and this error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, error: &str) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with(&format!("error[{error}]: ")), "expected {error}: {self:?}");
        self
    }
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).expect("everything printed is UTF-8")
    })
}

fn wait(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the command did not end in time");
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// What a running command has printed so far, both streams together.
#[derive(Default)]
struct Lines {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

fn follow(pipe: impl std::io::Read + Send + 'static, lines: Arc<Lines>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            lines.lines.lock().unwrap().push(line.expect("everything printed is UTF-8"));
            lines.more.notify_all();
        }
    })
}

/// A command that runs; it is killed when the test ends.
pub(crate) struct Running {
    child: Child,
    lines: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a command and follows what it prints.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be started");
        let lines = Arc::new(Lines::default());
        let readers = vec![
            follow(child.stdout.take().unwrap(), Arc::clone(&lines)),
            follow(child.stderr.take().unwrap(), Arc::clone(&lines)),
        ];
        Self { child, lines, readers }
    }

    /// Waits for a line that satisfies a condition.
    #[track_caller]
    pub(crate) fn line(&self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + DEADLINE;
        let mut lines = self.lines.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(|line| condition(line)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line is {what}: {lines:#?}");
            lines = self.lines.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// Waits for a JSON line that satisfies a condition.
    #[track_caller]
    pub(crate) fn json_line(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
        let line = self.line(what, |line| parse(line).is_some_and(|value| condition(&value)));
        parse(&line).unwrap()
    }

    /// How many lines satisfy a condition by now.
    pub(crate) fn count(&self, condition: impl Fn(&str) -> bool) -> usize {
        self.lines.lines.lock().unwrap().iter().filter(|line| condition(line)).count()
    }

    /// Everything printed by now.
    pub(crate) fn text(&self) -> String {
        self.lines.lines.lock().unwrap().join("\n")
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.unwrap().success(), "the process is there to be told");
    }

    /// Waits for the end, and returns the exit code and everything printed.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child);
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (code, self.text())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A `postrider listen` on a free port, and its URL.
pub(crate) fn listen<'a>(workplace: &Workplace, options: impl IntoIterator<Item = &'a str>) -> (Running, String) {
    let running = workplace.start(["listen", "--port", "0", "--json"].into_iter().chain(options));
    let started = running.json_line("the start of listening", |line| line["listening"].is_string());
    let url = started["listening"].as_str().unwrap().to_owned();
    (running, url)
}
