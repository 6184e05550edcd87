//! The document's Gherkin scenarios, run as they are written.
//!
//! They are an ordinary test, so that `cargo test` counts them and its filters reach them; the steps and a summary are
//! printed as they run.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::unused_async, clippy::needless_pass_by_value, reason = "all steps have one shape")]

mod support;

use std::path::Path;

use cucumber::writer::basic::Coloring;
use cucumber::writer::{Basic, Stats as _, Verbosity};
use cucumber::{World, WriterExt as _, given, then, when};
use gateway::deliveries::WebhookDelivery;
use gateway::topic::TOPIC;
use gateway::{TopicEvent, TopicSubscription, WebhookDLQEvent};
use jiff::SignedDuration;
use tokio::sync::Mutex;

use support::{Bench, heard};

#[derive(Debug, World)]
#[world(init = Self::new)]
struct Gateways {
    bench: Bench,
    subscription: TopicSubscription,
    row: Option<WebhookDelivery>,
}

impl Gateways {
    async fn new() -> Self {
        let bench = Bench::new().await;
        let subscription = bench.gateway.subscribe();
        Self { bench, subscription, row: None }
    }

    fn row(&self) -> &WebhookDelivery {
        self.row.as_ref().expect("a scenario begins with a row")
    }
}

#[given(regex = r#"^a webhook_deliveries row with status "(\w+)" and attempt_count (\d+)$"#)]
async fn a_row(world: &mut Gateways, status: String, attempt_count: u32) {
    let row = world.bench.failed(attempt_count).await;
    assert_eq!((row.status.as_str(), row.attempt_count), (status.as_str(), attempt_count));
    world.row = Some(row);
}

#[given(regex = r"^the target_url returns a (\d+) response$")]
async fn the_target_returns(world: &mut Gateways, status: u16) {
    world.bench.answers(status);
}

#[when("the WebhookRouter processes this row")]
async fn the_router_processes(world: &mut Gateways) {
    let id = world.row().id;
    world.row = Some(world.bench.process(id).await);
}

#[then(regex = r#"^the row is updated with status "(\w+)"(?:,| and) attempt_count (\d+)$"#)]
async fn the_row_is_updated(world: &mut Gateways, status: String, attempt_count: u32) {
    let row = world.row();
    assert_eq!((row.status.as_str(), row.attempt_count), (status.as_str(), attempt_count));
    assert_eq!(row.last_attempted_at, Some(world.bench.now()));
}

#[then(regex = r"^next_retry_at is approximately (\d+) seconds from now$")]
async fn next_retry_at(world: &mut Gateways, seconds: i64) {
    // The clock stands still, so that it is exactly so.
    assert_eq!(world.row().next_retry_at, Some(world.bench.now() + SignedDuration::from_secs(seconds)));
}

#[then("error_detail contains the failure reason")]
async fn error_detail(world: &mut Gateways) {
    assert_eq!(world.row().error_detail.as_deref(), Some("HTTP 500: said the receiver"));
}

#[then(regex = r#"^a WebhookDLQEvent is broadcast on the "([^"]+)" PubSub topic$"#)]
async fn a_dead_letter_is_broadcast(world: &mut Gateways, topic: String) {
    assert_eq!(topic, TOPIC);
    let row = world.row().clone();
    let expected = WebhookDLQEvent {
        webhook_delivery_id: row.id,
        webhook_id: row.webhook_id.unwrap(),
        session_id: row.session_id.unwrap(),
    };
    assert_eq!(heard(&mut world.subscription).await, TopicEvent::DeadLetter(expected));
}

#[then("no next_retry_at is set")]
async fn no_next_retry(world: &mut Gateways) {
    assert_eq!(world.row().next_retry_at, None);
}

/// How many steps passed, how many did not, and whether the run as a whole has failed.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    steps_passed: usize,
    steps_failed: usize,
    failed: bool,
}

/// Runs take the process's panic hook for themselves, and must give it back in order.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Runs the features at `path`, and writes what happens. A step that is not defined fails.
async fn run(path: &Path, output: impl std::io::Write + 'static) -> Ran {
    let _alone = ONE_AT_A_TIME.lock().await;
    let writer = Basic::new(output, Coloring::Never, Verbosity::Default).summarized();
    let cucumber = Gateways::cucumber().with_writer(writer).with_default_cli().fail_on_skipped();
    let writer = cucumber.run(path.to_owned()).await;
    Ran {
        steps_passed: writer.passed_steps(),
        steps_failed: writer.failed_steps(),
        failed: writer.execution_has_failed(),
    }
}

#[tokio::test]
async fn doc_003_scenarios_s1_and_s2_run_as_written() {
    let features = Path::new(env!("CARGO_MANIFEST_DIR")).join("features");
    let ran = run(&features, std::io::stdout()).await;
    assert_eq!(ran, Ran { steps_passed: 12, steps_failed: 0, failed: false });
}

#[tokio::test]
async fn a_step_that_is_not_defined_and_one_that_is_not_true_fail_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let feature = folder.path().join("wrong.feature");
    for (step, steps_passed) in [
        ("Then nobody has defined this", 0),
        ("Given a webhook_deliveries row with status \"dead\" and attempt_count 0", 0),
        ("Given the target_url returns a 500 response\n Then no next_retry_at is set", 1),
    ] {
        std::fs::write(&feature, format!("Feature: Wrong\nScenario: Wrong\n {step}\n")).unwrap();
        let ran = run(&feature, std::io::sink()).await;
        assert_eq!(ran, Ran { steps_passed, steps_failed: 1, failed: true }, "{step}");
    }
}
