//! All faults together, for as long as one likes: rounds of a minute, each with a database, a fleet and a load of its own,
//! and each judged at its end.

#![allow(clippy::print_stdout, reason = "what a soak has to say is its output")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use postrider::duration;
use postrider_promises::chaos::{Plan, run};
use postrider_promises::checker::{Figures, Kind, RULES};
use postrider_promises::cluster::Cluster;
use postrider_promises::dice::{self, Dice, mixed};
use postrider_promises::fleet::{Arena, Ground, terms};
use postrider_promises::inbox::Inbox;

/// For how long faults are injected before everything is let come to its end and judged.
const ROUND: Duration = Duration::from_secs(45);

/// Injects faults of all kinds into real processes and databases, and checks that every promise holds
#[derive(Debug, Parser)]
#[command(name = "soak")]
struct Arguments {
    /// Where all chance comes from; the same seed injects the same faults [default: a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// For how long, such as 90s, 10m or 1h
    #[arg(long = "for", default_value = "1h", value_parser = duration::parse)]
    length: Duration,
    /// On which databases
    #[arg(long, value_enum, default_value_t = Databases::Both)]
    database: Databases,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Databases {
    Postgres,
    Sqlite,
    Both,
}

impl Databases {
    fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::Both => "both",
        }
    }

    /// In which order the rounds go.
    fn rounds(self) -> &'static [Self] {
        match self {
            Self::Postgres => &[Self::Postgres],
            Self::Sqlite => &[Self::Sqlite],
            Self::Both => &[Self::Postgres, Self::Sqlite],
        }
    }
}

/// What all rounds came to.
#[derive(Debug, Default)]
struct Summary {
    rounds: u32,
    faults: BTreeMap<Kind, u32>,
    places: BTreeMap<String, u32>,
    figures: Figures,
    complaints: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(dice::seed);
    let false_clock = false_clock();
    println!("seed {seed}, for {}, on {}", duration::format(arguments.length), arguments.database.name());
    if false_clock.is_none() {
        println!("libfaketime is not installed: no dispatcher has a wrong clock");
    }
    let (began, mut summary) = (Instant::now(), Summary::default());
    let mut databases = arguments.database.rounds().iter().cycle();
    while began.elapsed() < arguments.length && summary.complaints.is_empty() {
        let database = *databases.next().expect("a cycle has no end");
        let round_seed = mixed(&[seed, u64::from(summary.rounds)]) % 1_000_000_000;
        let length = ROUND.min(arguments.length.saturating_sub(began.elapsed()).max(Duration::from_secs(10)));
        let plan = Plan { seed: round_seed, fleet: 1, length, false_clock: false_clock.clone() };
        match std::thread::spawn(move || round_to_its_end(database, plan)).join() {
            Ok(told) => summary.add(told, database),
            // It has said why, on standard error.
            Err(_) => summary.complaints.push(format!("round {} did not come to its end", summary.rounds + 1)),
        }
    }
    summary.tell(began.elapsed());
    if summary.complaints.is_empty() {
        println!("\nevery promise held; seed {seed}");
        return ExitCode::SUCCESS;
    }
    println!("\nFAILED with seed {seed}; repeat it with:");
    let length = duration::format(arguments.length);
    println!("  scripts/soak --seed {seed} --for {length} --database {}", arguments.database.name());
    ExitCode::FAILURE
}

/// One round, in a thread of its own so that its panic is not the end of the summary.
fn round_to_its_end(database: Databases, plan: Plan) -> Summary {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be started");
    runtime.block_on(round(database, plan))
}

async fn round(database: Databases, mut plan: Plan) -> Summary {
    let inbox = Inbox::moody(plan.seed).await;
    let ground = if database == Databases::Sqlite {
        Ground::File
    } else {
        plan.fleet = Dice::new(plan.seed).pick(&[1, 2, 4]);
        let start = || Arc::new(Cluster::start(&["max_connections=200"]));
        Ground::Own(tokio::task::spawn_blocking(start).await.expect("a Postgres can be started"))
    };
    let arena = Arena::open(ground, inbox, terms()).await;
    run(&arena, &plan).await;
    let verdict = arena.judged().await;
    let mut faults = BTreeMap::new();
    for fault in arena.faults() {
        *faults.entry(fault.kind).or_default() += 1;
    }
    let complaints = verdict.complaints.iter().take(50).map(ToString::to_string).collect();
    Summary { rounds: 1, faults, places: arena.places(), figures: verdict.figures, complaints }
}

impl Summary {
    fn add(&mut self, round: Self, database: Databases) {
        self.rounds += round.rounds;
        let injected: u32 = round.faults.values().sum();
        let figures = &round.figures;
        println!(
            "round {} on {}: {injected} starts and faults, {} acknowledged, {} delivered, {} dead, {} leases taken back \
             within {:?}, {} complaints",
            self.rounds,
            database.name(),
            figures.acknowledged,
            figures.delivered,
            figures.dead,
            figures.abandoned,
            figures.latest_recovery,
            round.complaints.len()
        );
        for (kind, count) in round.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (place, count) in round.places {
            *self.places.entry(place).or_default() += count;
        }
        self.figures.add(&round.figures);
        self.complaints.extend(round.complaints);
    }

    fn tell(&self, took: Duration) {
        println!("\n{} rounds in {} s\n\ninjected:", self.rounds, took.as_secs());
        for (kind, count) in &self.faults {
            println!("{count:>8}  {kind}");
        }
        for (place, count) in &self.places {
            println!("{count:>16}  at {place}");
        }
        let figures = &self.figures;
        println!("\nseen:");
        for (count, what) in [
            (figures.acknowledged, "enqueues acknowledged"),
            (figures.rolled_back, "enqueues taken back"),
            (figures.unknown, "enqueues without an answer"),
            (figures.delivered, "deliveries delivered"),
            (figures.dead, "deliveries dead"),
            (figures.quarantined, "of them quarantined"),
            (figures.claims, "leases granted"),
            (figures.settled, "settled"),
            (figures.abandoned, "taken back after they expired"),
            (figures.released, "given back"),
            (figures.requests, "requests received"),
            (figures.unsettled_requests, "of them repeated later"),
        ] {
            println!("{count:>8}  {what}");
        }
        println!("{:>8.0?}  the latest recovery of a lease after it expired", figures.latest_recovery);
        println!("{:>8.0?}  the latest new claim after that", figures.latest_takeover);
        println!("\nchecked, with {} complaints:", self.complaints.len());
        for rule in RULES {
            println!("  {rule}");
        }
        for complaint in &self.complaints {
            println!("COMPLAINT {complaint}");
        }
    }
}

/// Where Debian puts libfaketime.
fn false_clock() -> Option<PathBuf> {
    let candidates = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    candidates.map(|folder| PathBuf::from(folder).join("libfaketime.so.1")).into_iter().find(|path| path.exists())
}
