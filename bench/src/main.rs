//! `bench`: where Postrider stands, as ratios.
//!
//! Every figure that must reach something is a ratio within one run: to the raw limit (the same HTTP client posting the
//! same bytes to the same sink, with no store), or to the same work with one thing left out. Absolute numbers say more about
//! a machine than about us.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod cost;
mod lab;
mod load;
mod peer;
mod plot;
mod raw;
mod report;
mod scenarios;
mod sink;
mod tls;
mod usage;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::lab::Kind;
use crate::report::Report;
use crate::scenarios::growth::Sizes;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
#[command(about = "Measures Postrider as ratios against the limit of the same machine in the same run")]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
    /// On one store only.
    #[arg(long, global = true)]
    store: Option<Kind>,
    /// A tenth of the work, to see that everything runs.
    #[arg(long, global = true)]
    quick: bool,
    /// Only this part of the work, on a machine that is slower still: 100 for a hundredth.
    #[arg(long, global = true, hide = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    divide_by: Option<u32>,
    /// Where to write the results.
    #[arg(long, global = true, default_value = "bench/results")]
    results: PathBuf,
}

#[derive(Debug, Subcommand, Clone)]
enum Scenario {
    /// All of them, one after the other.
    All,
    /// Deliver a backlog, and compare with the raw limit.
    Drain,
    /// Single POSTs in, webhooks out.
    EndToEnd,
    /// From an enqueue to the receiver, at a steady rate.
    Latency,
    /// Claims beside much that they should not look at.
    Growth {
        /// How many deliveries of history, instead of the usual steps.
        #[arg(long)]
        history: Option<usize>,
    },
    /// Deliveries beside a thousand leases that are renewed.
    Heartbeats,
    /// A receiver that never answers beside a healthy one.
    Neighbour,
    /// Transactions with and without an event in them.
    Enqueue,
    /// Events to one, ten and a hundred endpoints.
    FanOut,
    /// One, two and four dispatchers on one Postgres.
    Dispatchers,
    /// Deliveries while vacuum is held back.
    Vacuum,
    /// Payloads of 1, 64 and 256 kB.
    Payloads,
    /// Receivers that speak TLS.
    Tls,
    /// Receivers that take 2 to 100 ms to answer.
    Slow,
    /// The memory of `serve` beside a large backlog.
    Backlog,
    /// A steady rate for long, with history that is removed.
    Steady {
        /// For how long; two minutes within `all`.
        #[arg(long = "for", value_parser = postrider::duration::parse, default_value = "1h")]
        span: Duration,
    },
    /// Instructions for a delivery, counted by valgrind; no part of `all`.
    Instructions,
    /// Workers on job queues of others, with npm and Redis; no part of `all`.
    Peers,
    /// The receiver; started by the others.
    #[command(hide = true)]
    Sink(sink::Receivers),
    /// Who posts; started by the others.
    #[command(hide = true)]
    Load(load::Load),
}

impl Scenario {
    fn all() -> Vec<Self> {
        vec![
            Self::Drain,
            Self::EndToEnd,
            Self::Latency,
            Self::Growth { history: None },
            Self::Heartbeats,
            Self::Neighbour,
            Self::Enqueue,
            Self::FanOut,
            Self::Dispatchers,
            Self::Vacuum,
            Self::Payloads,
            Self::Tls,
            Self::Slow,
            Self::Backlog,
            Self::Steady { span: Duration::from_mins(2) },
        ]
    }

    /// Whether it says something about this store.
    fn is_about(&self, store: Option<Kind>) -> bool {
        store != Some(Kind::Sqlite) || !matches!(self, Self::Enqueue | Self::Dispatchers | Self::Vacuum)
    }
}

fn main() -> Result<ExitCode, Failure> {
    if std::env::var_os(lab::AS_POSTRIDER).is_some() {
        return Ok(postrider_cli::run());
    }
    let arguments = Arguments::parse();
    match &arguments.scenario {
        Scenario::Sink(receivers) => sink::serve(receivers)?,
        Scenario::Load(load) => load::run(load.clone())?,
        scenario => return tokio::runtime::Runtime::new()?.block_on(unless_interrupted(&arguments, scenario)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whoever is told to stop leaves no database server behind.
async fn unless_interrupted(arguments: &Arguments, scenario: &Scenario) -> Result<ExitCode, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = measure(arguments, scenario) => result,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminate.recv() => Err("told to stop".into()),
    }
}

async fn measure(arguments: &Arguments, scenario: &Scenario) -> Result<ExitCode, Failure> {
    let chosen = if matches!(scenario, Scenario::All) { Scenario::all() } else { vec![scenario.clone()] };
    let chosen: Vec<_> = chosen.into_iter().filter(|scenario| scenario.is_about(arguments.store)).collect();
    if chosen.is_empty() {
        return Err("this scenario is about Postgres alone".into());
    }
    let mut trouble = Vec::new();
    for scenario in &chosen {
        // What fails does not keep the others from being measured.
        let report = match run(arguments, scenario).await {
            Ok(report) => report,
            Err(error) => {
                println!("{scenario:?} failed: {error}\n");
                trouble.push(format!("{scenario:?} failed: {error}"));
                continue;
            }
        };
        println!("{}", report.table());
        report.write(&arguments.results)?;
        if !report.is_complete() {
            trouble.push(format!("{}: {}", report.scenario, report.fate()));
        }
        for figure in report.missed() {
            let bar = figure.bar.map_or(String::new(), report::Bar::text);
            let value = report::short(figure.value);
            trouble.push(format!("{}: {}: {value} {}, not {bar}", report.scenario, figure.name, figure.unit));
        }
    }
    println!("results are in {}", arguments.results.display());
    if trouble.is_empty() {
        println!("everything that must be reached is");
        return Ok(ExitCode::SUCCESS);
    }
    println!("what must be reached and is not:\n  {}", trouble.join("\n  "));
    Ok(ExitCode::FAILURE)
}

async fn run(arguments: &Arguments, scenario: &Scenario) -> Result<Report, Failure> {
    let kinds = arguments.store.map_or(Kind::BOTH.to_vec(), |kind| vec![kind]);
    let divisor = arguments.divide_by.unwrap_or(if arguments.quick { 10 } else { 1 });
    let size = |full: usize| (full / divisor as usize).max(1);
    let turns = |full: usize| if divisor > 1 { 1 } else { full };
    match scenario {
        Scenario::Drain => scenarios::drain::run(size(200_000), turns(2), &kinds).await,
        Scenario::EndToEnd => scenarios::end_to_end::run(size(100_000), &kinds).await,
        Scenario::Latency => scenarios::latency::run(size(30), &[100, 2000], &kinds).await,
        Scenario::Growth { history } => {
            let history = history.map_or(vec![size(100_000), size(1_000_000)], |history| vec![history]);
            let sizes = Sizes { history, later: size(1_000_000), due: size(1_000_000) };
            scenarios::growth::run(&sizes, &kinds).await
        }
        Scenario::Heartbeats => {
            let span = Duration::from_secs(20) / divisor;
            scenarios::heartbeats::run(size(200_000), turns(7), span, &kinds).await
        }
        Scenario::Neighbour => scenarios::neighbour::run(size(10), turns(3), &kinds).await,
        Scenario::Enqueue => scenarios::enqueue::run(size(10_000), turns(3)).await,
        Scenario::FanOut => scenarios::fan_out::run(size(100_000), &kinds).await,
        Scenario::Dispatchers => scenarios::dispatchers::run(size(300_000), turns(2)).await,
        Scenario::Vacuum => scenarios::vacuum::run(size(100_000), turns(3)).await,
        Scenario::Payloads => scenarios::payloads::run(size(50_000), &kinds).await,
        Scenario::Tls => scenarios::tls::run(size(100_000), turns(2), &kinds).await,
        Scenario::Slow => scenarios::slow::run(size(100_000), turns(2), &kinds).await,
        Scenario::Backlog => scenarios::backlog::run(size(1_000_000), &kinds).await,
        Scenario::Steady { span } => scenarios::steady::run(*span / divisor, &kinds).await,
        Scenario::Instructions => scenarios::instructions::run(size(8_000), &kinds).await,
        Scenario::Peers => scenarios::peers::run(size(100_000), turns(2), &kinds).await,
        Scenario::All | Scenario::Sink(_) | Scenario::Load(_) => unreachable!("not a scenario"),
    }
}
