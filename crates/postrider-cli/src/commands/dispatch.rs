//! `postrider dispatch`: delivers what is due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use postrider::dispatcher::{InvalidDispatcher, Totals};
use postrider::{Dispatcher, Store, WorkerId, duration};
use postrider_server::Service;
use serde::Serialize;

use crate::commands::Context;
use crate::config::{Config, Key};
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::{DestinationFlags, DispatcherFlags, RetryFlags, SignatureFlags, SigningSecretFlag, UpkeepFlags};
use crate::logging;
use crate::output::Output;
use crate::process::{self, Process};
use crate::signals::Signals;

const EXAMPLES: &str = "\
With --listen it answers /healthz, /readyz and /metrics there.

It runs until SIGINT or SIGTERM, then claims nothing new, waits for the attempts under way (at most
--drain-timeout), and exits with 0. A second signal ends it at once.

An SQLite file has one dispatcher at a time; on Postgres run as many as wanted.

Logs go to standard error. POSTRIDER_LOG (or RUST_LOG) says how much: info, postrider=debug,warn.

Examples:
  postrider dispatch
  postrider dispatch --until-idle --allowed-networks 127.0.0.0/8
  postrider dispatch --database postgres://postrider@db.internal/app --max-in-flight 1024";

/// Deliver what is due, until told to stop
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Stop as soon as nothing is due or in flight; what is scheduled for later is left
    #[arg(long)]
    until_idle: bool,
    /// Apply missing migrations first, also on Postgres
    #[arg(long)]
    migrate: bool,
    /// Answer `/healthz`, `/readyz` and `/metrics` on this address; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    #[command(flatten)]
    upkeep: UpkeepFlags,
    #[command(flatten)]
    dispatcher: DispatcherFlags,
    #[command(flatten)]
    retries: RetryFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    signature: SignatureFlags,
    #[command(flatten)]
    signing_secret: SigningSecretFlag,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let listen = arguments.listen.iter().map(|address| (Key::Listen, address.clone())).collect();
    let flags = [
        listen,
        arguments.upkeep.flags(),
        arguments.dispatcher.flags(),
        arguments.retries.flags(),
        arguments.destinations.flags(),
        arguments.signature.flags(),
        arguments.signing_secret.flags(),
    ];
    let config = context.config_without_server(flags.concat())?;
    let signals = Signals::catch()?;
    logging::start(&config)?;
    // The key of the configuration is the server's address; a dispatcher beside it must not want the same one.
    let bound = if arguments.listen.is_some() { Some(process::bind(config.listen).await?) } else { None };
    let preparation = if arguments.migrate { Preparation::Migrate } else { Preparation::Create };
    let store = config.database.open_for_service(&config, preparation).await?;
    let dispatcher = build(Arc::clone(&store), &config)?;
    tell_start(&config, &dispatcher);
    let server = bound.map(|(listener, url)| {
        tracing::info!(url, "{url}/healthz, /readyz and /metrics are answered");
        let service = Service::new(Arc::clone(&store), process::service_settings(&config));
        (process::operations(service, &config, &dispatcher), listener)
    });

    let until_idle = arguments.until_idle && config.dispatch_enabled;
    let done = async {
        if until_idle {
            idle(&*store, config.poll_interval).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let ended = Process { dispatcher: Some(dispatcher), server }.run(signals, done).await?;
    conclude(&ended.totals.unwrap_or_default(), context.output)
}

/// Tells what a dispatcher did.
pub(crate) fn conclude(totals: &Totals, output: Output) -> Result<(), Failure> {
    let report = Report::from(totals);
    if output.json { output.document(&report) } else { output.line(report.sentence()) }
}

/// The dispatcher that the configuration describes.
pub(crate) fn build(store: Arc<dyn Store>, config: &Config) -> Result<Dispatcher, Failure> {
    let dispatcher = Dispatcher::builder(store)
        .worker_id(config.worker_id.clone().unwrap_or_else(WorkerId::random))
        .lease(config.lease.lease())
        .poll_interval(config.poll_interval)
        .max_in_flight(config.max_in_flight)
        .max_in_flight_per_destination(config.max_in_flight_per_destination)
        .timeout(config.timeout)
        .connect_timeout(config.connect_timeout)
        .name_servers(config.name_servers.clone())
        .retry_policy(config.retry_policy.clone())
        .signing_secrets(config.signing_secrets.clone())
        .signature(config.signature.clone())
        .destinations(config.admission.destinations.clone())
        .kept_response_bytes(config.kept_response_bytes)
        .drain_timeout(config.drain_timeout)
        .max_abandoned(config.max_abandoned)
        .disable_after(config.disable_after)
        .retention(config.retention)
        .enabled(config.dispatch_enabled);
    dispatcher.build().map_err(|error| match error {
        InvalidDispatcher::Transport(error) => Failure::new(Exit::Failed, "transport_failed", error.to_string()),
        invalid => Failure::new(Exit::Refused, "config_value_invalid", invalid.to_string()),
    })
}

pub(crate) fn tell_start(config: &Config, dispatcher: &Dispatcher) {
    tracing::info!(
        worker_id = %dispatcher.worker_id(),
        "dispatching from {}, lease {} (renewed every {}), at most {} in flight and {} per destination, timeout {}, {} attempts",
        config.database,
        duration::format(config.lease.lease()),
        duration::format(dispatcher.heartbeat()),
        config.max_in_flight,
        config.max_in_flight_per_destination,
        duration::format(config.timeout),
        config.retry_policy.max_attempts(),
    );
    if config.signing_secrets.is_empty() {
        tracing::info!("no signing_secret is set: only registered endpoints can be delivered to");
    }
}

/// Returns when nothing is due and nothing is in flight.
///
/// Deliveries that are due but that nobody may take, because their endpoint is paused, would keep it waiting for
/// ever: when only such are left, and nothing has moved for a while, it returns as well.
async fn idle(store: &dyn Store, poll_interval: Duration) {
    let patience = (poll_interval * 3).max(Duration::from_secs(2));
    let mut still_since = Instant::now();
    let mut due_before = 0;
    loop {
        let asked_at = Instant::now();
        // What is due by the clock, but not yet moved to where it can be claimed, counts as due.
        let promoted = store.promote(1_000).await;
        let overview = store.overview(None).await;
        if let (Ok(promoted), Ok(overview)) = (promoted, overview) {
            if promoted.ready == 0 && overview.due == 0 && overview.in_flight == 0 {
                return;
            }
            if overview.in_flight > 0 || overview.due != due_before {
                still_since = Instant::now();
                due_before = overview.due;
            }
            if still_since.elapsed() > patience {
                tracing::warn!(due = overview.due, "what is due is held back: its endpoints are not active");
                return;
            }
        }
        // An overview counts, which takes time on a large database; most of the time is left to the dispatcher.
        tokio::time::sleep((asked_at.elapsed() * 10).max(Duration::from_millis(50))).await;
    }
}

/// What a dispatcher did, for programs.
#[derive(Serialize)]
struct Report {
    claimed: u64,
    delivered: u64,
    retried: u64,
    dead: u64,
    lost: u64,
    released: u64,
    errors: u64,
    responses_2xx: u64,
    responses_3xx: u64,
    responses_4xx: u64,
    responses_5xx: u64,
    network_failures: u64,
}

impl From<&Totals> for Report {
    fn from(totals: &Totals) -> Self {
        Self {
            claimed: totals.claimed,
            delivered: totals.delivered,
            retried: totals.retried,
            dead: totals.dead,
            lost: totals.lost,
            released: totals.released,
            errors: totals.errors,
            responses_2xx: totals.responses_2xx,
            responses_3xx: totals.responses_3xx,
            responses_4xx: totals.responses_4xx,
            responses_5xx: totals.responses_5xx,
            network_failures: totals.network_failures,
        }
    }
}

impl Report {
    fn sentence(&self) -> String {
        let mut text = format!("{} delivered, {} to be tried again, {} dead", self.delivered, self.retried, self.dead);
        for (count, what) in [(self.lost, "lost to another worker"), (self.released, "given back")] {
            if count > 0 {
                text = format!("{text}, {count} {what}");
            }
        }
        text
    }
}
