//! A receiver that accepts and never answers, with ten thousand deliveries due, beside one that gets a hundred per second.

use std::net::TcpListener;

use postrider::NewEvent;

use super::latency::stream;
use super::{median, quantile};
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::report::{Bar, Report, grouped};

const RATE: usize = 100;
const DUE: usize = 10_000;

pub(crate) async fn run(seconds: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "{RATE}/s to a healthy receiver, alone and beside one that never answers with {} due; {turns} x {seconds} s each",
        grouped(DUE)
    );
    let mut report = Report::new("neighbour", what);
    for &kind in kinds {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for turn in 0..turns {
            alone.push(measure(kind, seconds, 0, turn == 0, &mut report).await?);
            beside.push(measure(kind, seconds, DUE, turn == 0, &mut report).await?);
        }
        let (alone, beside, name) = (median(alone), median(beside), kind.name());
        report.add(format!("{name}: 99th percentile alone"), alone, "ms");
        report.add(format!("{name}: 99th percentile beside it"), beside, "ms");
        report.add_with_bar(format!("{name}: ratio"), beside / alone, "x", Bar::AtMost(1.5));
    }
    Ok(report)
}

/// The 99th percentile in milliseconds.
async fn measure(kind: Kind, seconds: usize, due: usize, is_first: bool, report: &mut Report) -> Result<f64, Failure> {
    // Whoever connects is held by the kernel, and never hears anything.
    let hole = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", hole.local_addr()?);
    let mut lab = Lab::new(kind, 1).await?;
    let body = payload(1000);
    for _ in 0..due / 1000 {
        let list = std::iter::repeat_with(|| NewEvent::new("bench.event", body.clone()).to(&url)).take(1000);
        lab.store.enqueue(list.collect()).await?;
    }
    lab.rest().await?;
    let name = format!("{}, {}", kind.name(), if due == 0 { "alone" } else { "beside it" });
    let lines = report.costs.len();
    let streamed = stream(&mut lab, RATE, RATE * seconds, &name, report).await?;
    if !is_first {
        report.costs.truncate(lines);
    }
    Ok(quantile(&streamed.milliseconds, 0.99))
}
