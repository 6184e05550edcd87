//! Postrider beside workers on job queues of others, in one run on one machine: the same payload to the same receivers, from
//! a backlog, and added one at a time while it is delivered. Each peer is first tried in several ways, and measured in its best.

use std::sync::Arc;

use postrider::{Admission, NewEvent, Store};
use postrider_postgres::PostgresStore;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use super::{Drained, drain, has_ended, tally};
use crate::Failure;
use crate::lab::{Kind, Lab, Measured, loopback, payload, per_second};
use crate::peer::{Ground, Peer, Programs, Way};
use crate::report::{Report, Tally, grouped};
use crate::sink::Arrivals;

const LANES: usize = 16;
/// Who adds one event at a time, at once.
const PRODUCERS: usize = 16;
/// How long a peer's backlog should last, or figures are of its start.
const SECONDS: f64 = 15.0;

/// What was measured of one of those who are compared.
struct Measurement {
    name: String,
    is_on_postgres: bool,
    jobs: usize,
    drained: Option<Drained>,
    /// Per second, added one at a time.
    fed: f64,
    /// Of a peer's jobs. Postrider's deliveries are counted in the report, where what is lost makes the run fail.
    fate: Tally,
}

impl Measurement {
    fn new(name: String, is_on_postgres: bool, jobs: usize) -> Self {
        Self { name, is_on_postgres, jobs, drained: None, fed: 0.0, fate: Tally::default() }
    }

    /// The faster of this and what there was.
    fn drained(&mut self, drained: Drained) {
        self.drained = Some(drained.best(self.drained.take()));
    }

    fn rate(&self) -> f64 {
        self.drained.as_ref().map_or(f64::NAN, |drained| drained.rate)
    }
}

pub(crate) async fn run(events: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let programs = Programs::install()?;
    let mut report = Report::new("peers", "");
    let some = events.div_ceil(5);
    let ours = |&kind: &Kind| {
        (kind, Measurement::new(format!("Postrider on {}", kind.name()), kind == Kind::Postgres, events))
    };
    let mut ours: Vec<_> = kinds.iter().map(ours).collect();
    let mut theirs = Vec::new();
    for peer in Peer::ALL {
        let mut measurement = Measurement::new(peer.name().to_owned(), peer.is_on_postgres(), some);
        let (way, rate) = best_way(&programs, peer, &mut measurement, &mut report).await?;
        measurement.jobs = enough(rate, some, events);
        theirs.push((peer, way, measurement));
    }
    for _ in 0..turns {
        for (kind, measurement) in &mut ours {
            let mut lab = Lab::new(*kind, LANES).await?;
            lab.fill(events).await?;
            measurement.drained(drain(&mut lab, events, &[&["dispatch"]], &mut report).await?);
        }
        for (peer, way, measurement) in &mut theirs {
            let drained = drain_peer(&programs, *peer, *way, measurement.jobs, &mut measurement.fate).await?;
            measurement.drained(drained);
        }
    }
    for (kind, measurement) in &mut ours {
        for _ in 0..turns {
            measurement.fed = feed(*kind, some, &mut report).await?.max(measurement.fed);
        }
    }
    // The best way with a backlog need not be the best here.
    for (peer, _, measurement) in &mut theirs {
        for way in peer.ways() {
            let fed = feed_peer(&programs, *peer, way, some, &mut measurement.fate).await?;
            measurement.fed = fed.max(measurement.fed);
        }
    }
    let ours: Vec<_> = ours.into_iter().map(|(_, measurement)| measurement).collect();
    let theirs: Vec<_> = theirs.into_iter().map(|(.., measurement)| measurement).collect();
    report.what = format!(
        "a backlog of {} deliveries of 1 kB over {LANES} destinations, by Postrider and by workers on job queues ({}; fewer \
         jobs where so many would take more than {SECONDS} s); then {} added one at a time by {PRODUCERS} producers. {}",
        grouped(events),
        programs.versions()?,
        grouped(some),
        fate(&theirs)
    );
    tell(&ours, &theirs, &mut report);
    Ok(report)
}

/// What became of the jobs of peers.
fn fate(theirs: &[Measurement]) -> String {
    let jobs = theirs.iter().map(|measurement| measurement.fate.deliveries).sum();
    let trouble = |Measurement { name, fate, .. }: &Measurement| {
        let Tally { duplicates, lost, .. } = fate;
        (*duplicates > 0 || *lost > 0).then(|| format!("{name}: {duplicates} came twice, {lost} were lost"))
    };
    let trouble: Vec<_> = theirs.iter().filter_map(trouble).collect();
    let trouble = if trouble.is_empty() { "none came twice, none was lost".to_owned() } else { trouble.join("; ") };
    format!("Of the peers' {} jobs: {trouble}. Those that are counted below are Postrider's", grouped(jobs))
}

/// As many jobs as last for a while at this rate, between two bounds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are positive, and it is bounded")]
fn enough(rate: f64, least: usize, most: usize) -> usize {
    ((rate * SECONDS) as usize).clamp(least, most)
}

/// Tries all ways of a peer with a small backlog: the fastest, and its rate.
async fn best_way(
    programs: &Programs,
    peer: Peer,
    measurement: &mut Measurement,
    report: &mut Report,
) -> Result<(Way, f64), Failure> {
    let mut best: Option<(Way, f64)> = None;
    for way in peer.ways() {
        let rate = drain_peer(programs, peer, way, measurement.jobs, &mut measurement.fate).await?.rate;
        let unit = "per second, when tried: processes x sent at a time by each";
        report.add(format!("{}: {way}", peer.name()), rate, unit);
        if best.is_none_or(|(_, fastest)| rate > fastest) {
            best = Some((way, rate));
        }
    }
    best.ok_or_else(|| "a peer has at least one way".into())
}

/// Delivers a backlog of so many jobs.
async fn drain_peer(
    programs: &Programs,
    peer: Peer,
    way: Way,
    jobs: usize,
    fate: &mut Tally,
) -> Result<Drained, Failure> {
    let mut ground = Ground::new(programs, peer, LANES).await?;
    ground.fill(0, jobs).await?;
    let mut meter = ground.meter()?;
    let mut workers = ground.work(way)?;
    for worker in &workers {
        meter.watch(worker.process, worker.pid())?;
    }
    let arrivals = all_of(&mut ground.lab, jobs, &mut workers).await?;
    let costs = meter.read()?;
    let rate = per_second(arrivals.first.len(), arrivals.span());
    end(&mut ground, workers, arrivals, jobs, fate)?;
    Ok(Drained { rate, costs })
}

/// Waits until each of so many jobs has come, or no more do. What comes again is not mistaken for what has not come.
async fn all_of(lab: &mut Lab, jobs: usize, workers: &mut [Measured]) -> Result<Arrivals, Failure> {
    let mut arrivals = Arrivals::default();
    while arrivals.first.len() < jobs {
        let missing = jobs - arrivals.first.len();
        let more = tokio::select! {
            more = lab.arrived(missing) => more?,
            error = has_ended(workers) => return Err(error),
        };
        if more.first.is_empty() {
            break;
        }
        arrivals.add(more);
    }
    Ok(arrivals)
}

/// Stops the workers, and counts what became of their jobs as that of deliveries is counted.
fn end(
    ground: &mut Ground<'_>,
    workers: Vec<Measured>,
    mut arrivals: Arrivals,
    jobs: usize,
    fate: &mut Tally,
) -> Result<(), Failure> {
    for worker in workers {
        worker.stop()?;
    }
    arrivals.add(ground.lab.sink.take()?);
    let recorded = jobs.saturating_sub(ground.left()?);
    fate.deliveries += jobs;
    fate.duplicates += arrivals.repeated;
    fate.lost += jobs - arrivals.first.len().min(recorded);
    Ok(())
}

/// Enqueues events one at a time while a dispatcher runs: deliveries per second.
async fn feed(kind: Kind, events: usize, report: &mut Report) -> Result<f64, Failure> {
    let mut lab = Lab::new(kind, LANES).await?;
    let store: Arc<dyn Store> = if kind == Kind::Postgres {
        let connections = u32::try_from(PRODUCERS)?;
        let pool = PgPoolOptions::new().min_connections(connections).max_connections(connections);
        let pool = pool.test_before_acquire(false).connect(&lab.database).await?;
        let admission = Admission { destinations: loopback()?, ..Admission::default() };
        Arc::new(PostgresStore::from_pool(pool).with_admission(admission))
    } else {
        Arc::clone(&lab.store)
    };
    let mut running = vec![lab.start(&["dispatch"])?];
    // One that is delivered before the others says that the dispatcher works.
    lab.enqueue(1, &payload(1000), None).await?;
    let mut first = all_of(&mut lab, 1, &mut running).await?;
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (store, urls) = (Arc::clone(&store), lab.sink.urls.clone());
        producers.spawn(async move {
            let body = payload(1000);
            for number in (producer..events).step_by(PRODUCERS) {
                let event = NewEvent::new("bench.event", body.clone()).to(&urls[number % urls.len()]);
                store.enqueue(vec![event]).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    let arrivals = all_of(&mut lab, events, &mut running).await?;
    for result in producers.join_all().await {
        result?;
    }
    for process in running {
        process.stop()?;
    }
    let rate = per_second(arrivals.first.len(), arrivals.span());
    first.add(arrivals);
    report.count(tally(&mut lab, first, events + 1).await?);
    Ok(rate)
}

/// The same with a peer: jobs per second.
async fn feed_peer(programs: &Programs, peer: Peer, way: Way, jobs: usize, fate: &mut Tally) -> Result<f64, Failure> {
    let mut ground = Ground::new(programs, peer, LANES).await?;
    let mut workers = ground.work(way)?;
    ground.fill(0, 1).await?;
    let mut first = all_of(&mut ground.lab, 1, &mut workers).await?;
    let producers = ground.feed(1, jobs)?;
    let arrivals = all_of(&mut ground.lab, jobs, &mut workers).await?;
    drop(producers);
    let rate = per_second(arrivals.first.len(), arrivals.span());
    first.add(arrivals);
    end(&mut ground, workers, first, jobs + 1, fate)?;
    Ok(rate)
}

/// What was measured, and Postrider against each of the others.
fn tell(ours: &[Measurement], theirs: &[Measurement], report: &mut Report) {
    for measurement in ours.iter().chain(theirs) {
        report.add(measurement.name.clone(), measurement.rate(), "per second, from a backlog");
    }
    for measurement in ours.iter().chain(theirs) {
        report.add(measurement.name.clone(), measurement.fed, "per second, added one at a time");
    }
    for our in ours {
        let [backlog, one_at_a_time] = if our.is_on_postgres {
            ["x by Postrider on Postgres, from a backlog", "x by Postrider on Postgres, added one at a time"]
        } else {
            ["x by Postrider on SQLite, from a backlog", "x by Postrider on SQLite, added one at a time"]
        };
        for their in theirs {
            report.add(format!("against {}", their.name), our.rate() / their.rate(), backlog);
            report.add(format!("against {}", their.name), our.fed / their.fed, one_at_a_time);
        }
    }
    for Measurement { name, jobs, drained, .. } in ours.iter().chain(theirs) {
        if let Some(drained) = drained {
            report.add_costs(name, &drained.costs, *jobs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, is_on_postgres: bool, rate: f64) -> Measurement {
        let mut measurement = Measurement::new(name.to_owned(), is_on_postgres, 1);
        measurement.drained(Drained { rate, costs: Vec::new() });
        measurement
    }

    #[test]
    fn a_backlog_lasts_for_a_while_and_has_bounds() {
        assert_eq!([100.0, 4000.0, 50_000.0].map(|rate| enough(rate, 20_000, 100_000)), [20_000, 60_000, 100_000]);
    }

    #[test]
    fn postrider_is_compared_with_each() {
        let mut report = Report::new("peers", "");
        let theirs = [measured("slow", true, 1.0), measured("fast", false, 60.0)];
        tell(&[measured("ours", true, 30.0)], &theirs, &mut report);
        let unit = "x by Postrider on Postgres, from a backlog";
        let told = report.figures.iter().filter(|figure| figure.unit == unit);
        let told: Vec<_> = told.map(|figure| format!("{} {}", figure.name, figure.value)).collect();
        assert_eq!(told, ["against slow 30", "against fast 0.5"]);
    }

    #[test]
    fn what_a_peer_loses_is_told_of_it() {
        let (mut careful, mut careless) = (measured("careful", true, 1.0), measured("careless", true, 1.0));
        careful.fate.deliveries = 4000;
        assert!(fate(&[careful]).starts_with("Of the peers' 4,000 jobs: none came twice, none was lost."));
        careless.fate = Tally { deliveries: 10, duplicates: 1, lost: 2 };
        let text = fate(&[measured("careful", true, 1.0), careless]);
        assert!(text.starts_with("Of the peers' 10 jobs: careless: 1 came twice, 2 were lost."), "{text}");
    }
}
