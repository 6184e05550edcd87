//! The binary: its start, its stop, and its end in the middle of everything.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};

use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually, within};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

fn gateway(database: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--allowed-networks", "127.0.0.0/8", "--database"]);
    command.arg(database).env_clear().stderr(Stdio::piped()).kill_on_drop(true);
    command
}

struct Process {
    child: Child,
    url: String,
    client: reqwest::Client,
    // Kept, because a process whose standard error is closed fails to log.
    _log: Lines<BufReader<ChildStderr>>,
}

impl Process {
    async fn start(database: &Path) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut child = gateway(database).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = async {
            loop {
                let line = log.next_line().await.unwrap().expect("the gateway starts");
                if let Some((_, address)) = line.split_once("listening on ") {
                    return address.trim().to_owned();
                }
            }
        };
        let url = within("the gateway to listen", PATIENCE, listening).await;
        Self { child, url, client: reqwest::Client::new(), _log: log }
    }

    async fn post(&self, path: &str, body: Value) {
        let request = self.client.post(format!("{}{path}", self.url)).json(&body).timeout(PATIENCE);
        assert_eq!(request.send().await.unwrap().status(), 201);
    }

    async fn newest(&self) -> Value {
        let request = self.client.get(format!("{}/deliveries?limit=1", self.url)).timeout(PATIENCE);
        request.send().await.unwrap().json::<Value>().await.unwrap()["data"][0].clone()
    }

    async fn becomes(&self, status: &str) -> Value {
        eventually(&format!("the delivery to be {status}"), PATIENCE, async || {
            Some(self.newest().await).filter(|newest| newest["status"] == status)
        })
        .await
    }

    async fn terminate(mut self) -> ExitStatus {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        within("the gateway to stop", PATIENCE, self.child.wait()).await.unwrap()
    }
}

/// A receiver that keeps its first sender waiting.
async fn slow_at_first(gate: &Gate) -> Receiver {
    let gate = gate.clone();
    let slow = move |number| if number == 1 { Answer::status(200).after(&gate) } else { Answer::status(200) };
    Receiver::start(move |_, number| slow(number)).await
}

#[tokio::test]
async fn what_a_killed_gateway_had_begun_is_delivered_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("gateway.db");
    let receiver = slow_at_first(&Gate::new()).await;
    let mut killed = Process::start(&database).await;
    killed.post("/webhooks", json!({"target_url": receiver.url(), "secret": "shared with the receiver"})).await;
    killed.post("/sessions", json!({"name": "night shift"})).await;
    receiver.wait_for(1, PATIENCE).await;
    killed.child.kill().await.unwrap();

    let next = Process::start(&database).await;
    let delivered = next.becomes("delivered").await;
    assert_eq!(delivered["attempt_count"], 1, "the attempt that nobody settled is not counted");
    assert_eq!(receiver.request_count(), 2);
    assert!(next.terminate().await.success());
}

#[tokio::test]
async fn a_stop_waits_for_the_attempt_that_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("gateway.db");
    let gate = Gate::new();
    let receiver = slow_at_first(&gate).await;
    let stopped = Process::start(&database).await;
    stopped.post("/webhooks", json!({"target_url": receiver.url(), "secret": "shared with the receiver"})).await;
    stopped.post("/sessions", json!({"name": "night shift"})).await;
    receiver.wait_for(1, PATIENCE).await;
    let (client, url) = (stopped.client.clone(), stopped.url.clone());
    let stopping = tokio::spawn(stopped.terminate());
    eventually("the gateway to accept nothing new", PATIENCE, async || client.get(&url).send().await.err()).await;
    assert!(!stopping.is_finished());
    gate.open();
    assert!(stopping.await.unwrap().success());

    let next = Process::start(&database).await;
    assert_eq!(next.newest().await["status"], "delivered");
    assert_eq!(receiver.request_count(), 1);
    next.terminate().await;
}

async fn refused(command: &mut Command) -> (Option<i32>, String) {
    let output: Output = within("the gateway to refuse", PATIENCE, command.output()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn a_start_that_cannot_be_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("gateway.db");
    for (variable, value, code, reason) in [
        ("GATEWAY_SECRET_KEY", "canary", 1, "GATEWAY_SECRET_KEY"),
        ("GATEWAY_POLL_INTERVAL", "soon", 2, "--poll-interval"),
        ("GATEWAY_POLL_INTERVAL", "1ms", 1, "poll_interval_invalid"),
        ("GATEWAY_TIMEOUT", "0s", 1, "timeout_invalid"),
    ] {
        let (status, error) = refused(gateway(&database).env(variable, value)).await;
        assert_eq!(status, Some(code), "{variable}={value}: {error}");
        assert!(error.contains(reason) && !error.contains("canary"), "{variable}={value}: {error}");
    }
    let (status, error) = refused(gateway(&database).args(["--allowed-networks", "10.0.0.0/99"])).await;
    assert!(status == Some(1) && error.contains("GATEWAY_ALLOWED_NETWORKS"), "{error}");
    let (status, error) = refused(&mut gateway(&folder.path().join("no/such/folder.db"))).await;
    assert!(status == Some(1) && error.contains("no/such/folder.db"), "{error}");

    let first = Process::start(&database).await;
    let (status, error) = refused(&mut gateway(&database)).await;
    assert!(status == Some(1) && error.contains("dispatches from this database already"), "{error}");
    first.terminate().await;

    std::fs::write(folder.path().join("gateway.db.key"), "canary").unwrap();
    let (status, error) = refused(&mut gateway(&database)).await;
    assert!(status == Some(1) && error.contains("gateway.db.key") && !error.contains("canary"), "{error}");
}
