//! `rollouts demo`: three replicas, a receiver, and one plan that fails twice before it succeeds.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use postrider::{DestinationPolicy, Secret};
use rollouts::Rollouts;
use rollouts::plan::{NewPlan, NewTask, Outcome, Script};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::Failure;

const LOOPBACK: &str = "127.0.0.0/8";
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn run(database: &str) -> Result<(), Failure> {
    let rollouts = Rollouts::open(database, DestinationPolicy::default().allow_networks([LOOPBACK])?).await?;
    let (webhook_url, mut heard) = receive().await?;
    let secret = Secret::generate();
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Replica::start(database, &secret)?);
    }
    say("three replicas run tasks, and deliver what there is to tell")?;

    let task = |name: &str, outcome| {
        let script = Script { outcome, takes: Duration::from_millis(300) };
        NewTask { name: name.to_owned(), script }
    };
    let tasks = vec![
        task("add the column", Outcome::Succeeds),
        task("fill it", Outcome::FailsTimes(1)),
        task("index it", Outcome::FailsTimes(2)),
    ];
    let plan = rollouts.create(&NewPlan { title: "a new column".to_owned(), webhook_url, tasks }).await?;
    let told = ["two tasks fail, and that is told once", "one fails again", "all is done"];
    for (run, what) in told.into_iter().enumerate() {
        say("BatchRunTasks")?;
        rollouts.batch_run_tasks(plan.id, None).await?;
        if run == 1 {
            say("kill -9 of one replica; the others go on")?;
            drop(replicas.pop());
        }
        let notification = tokio::time::timeout(PATIENCE, heard.recv()).await?.ok_or("the receiver is gone")?;
        say(&format!("heard {notification}\n    ({what})"))?;
        settled(&rollouts, plan.id).await?;
    }
    Ok(())
}

/// A webhook on a free port, and what arrives there.
async fn receive() -> Result<(String, mpsc::Receiver<Value>), Failure> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let (sender, heard) = mpsc::channel(16);
    let take = async |State(sender): State<mpsc::Sender<Value>>, Json(body): Json<Value>| {
        // Nobody listens any more when the demonstration is over.
        let _ = sender.send(body).await;
    };
    let routes = Router::new().route("/", post(take)).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok((url, heard))
}

/// The first failure is told while other tasks still run; a retry of all waits for those.
async fn settled(rollouts: &Rollouts, plan: i64) -> Result<(), Failure> {
    while rollouts.plan(plan).await?.tasks.iter().any(|task| task.status.is_open()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A process of this program, killed with this value.
struct Replica(Child);

impl Replica {
    fn start(database: &str, secret: &Secret) -> Result<Self, Failure> {
        let replica = Command::new(std::env::current_exe()?)
            .args(["replica", "--lease", "2s", "--allowed-networks", LOOPBACK])
            .env("ROLLOUTS_DATABASE", database)
            .env("ROLLOUTS_SIGNING_SECRET", secret.reveal())
            .env("ROLLOUTS_LOG", "warn")
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(replica))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It can only have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}
