//! One file per scenario; each returns its report.

pub(crate) mod backlog;
pub(crate) mod dispatchers;
pub(crate) mod drain;
pub(crate) mod end_to_end;
pub(crate) mod enqueue;
pub(crate) mod fan_out;
pub(crate) mod growth;
pub(crate) mod heartbeats;
pub(crate) mod instructions;
pub(crate) mod latency;
pub(crate) mod neighbour;
pub(crate) mod payloads;
pub(crate) mod peers;
pub(crate) mod slow;
pub(crate) mod steady;
pub(crate) mod tls;
pub(crate) mod vacuum;

use std::time::Duration;

use postrider::{DeliveryFilter, DeliveryStatus};

use crate::Failure;
use crate::cost::Cost;
use crate::lab::{Lab, Measured, per_second};
use crate::report::{Report, Tally};
use crate::sink::Arrivals;

/// A backlog that was delivered.
#[derive(Debug)]
struct Drained {
    /// Deliveries per second, from the first arrival to the last.
    rate: f64,
    costs: Vec<Cost>,
}

impl Drained {
    /// The faster of two. Rates on a machine that does other things waver by more than what is looked for, so ways that are
    /// compared take turns, and the best of each counts.
    fn best(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.rate > self.rate => other,
            _ => self,
        }
    }
}

/// Delivers what is due, which must be this many, by a process for each list of arguments.
async fn drain(lab: &mut Lab, due: usize, processes: &[&[&str]], report: &mut Report) -> Result<Drained, Failure> {
    let mut meter = lab.meter()?;
    let mut running = Vec::new();
    for arguments in processes {
        let process = lab.start(arguments)?;
        meter.watch(process.process, process.pid())?;
        running.push(process);
    }
    let arrivals = tokio::select! {
        arrivals = lab.arrived(due) => arrivals?,
        error = has_ended(&mut running) => return Err(error),
    };
    let costs = meter.read()?;
    for process in running {
        process.stop()?;
    }
    let rate = per_second(arrivals.first.len(), arrivals.span());
    report.count(tally(lab, arrivals, due).await?);
    Ok(Drained { rate, costs })
}

/// Waits until one of the processes ends, which none should.
async fn has_ended(running: &mut [Measured]) -> Failure {
    while !running.iter_mut().any(Measured::has_ended) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    "a process ended on its own".into()
}

/// What became of so many deliveries. Nobody dispatches any more, so what came late has come by now.
async fn tally(lab: &mut Lab, arrivals: Arrivals, expected: usize) -> Result<Tally, Failure> {
    tally_of_retained(lab, arrivals, expected, 0).await
}

/// The same where the records of some that were delivered have been removed.
async fn tally_of_retained(
    lab: &mut Lab,
    mut arrivals: Arrivals,
    expected: usize,
    removed: usize,
) -> Result<Tally, Failure> {
    arrivals.add(lab.sink.take()?);
    let filter = DeliveryFilter { status: Some(DeliveryStatus::Delivered), ..DeliveryFilter::default() };
    let recorded = removed + usize::try_from(lab.store.count_deliveries(&filter).await?)?;
    let complete = arrivals.first.len().min(recorded);
    Ok(Tally { deliveries: expected, duplicates: arrivals.repeated, lost: expected.saturating_sub(complete) })
}

/// The value below which this share of them lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few() {
        let at = [0.0, 0.5, 0.99, 1.0].map(|share| quantile(&[1.0, 2.0, 3.0], share).to_string());
        assert_eq!(at, ["1", "2", "3", "3"]);
        assert!(quantile(&[], 0.5).is_nan());
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_faster_of_two_counts() {
        let drained = |rate| Drained { rate, costs: Vec::new() };
        assert!((drained(2.0).best(Some(drained(3.0))).best(Some(drained(1.0))).rate - 3.0).abs() < f64::EPSILON);
    }
}
