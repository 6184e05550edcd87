//! Payloads of one, 64 and 256 kilobytes, each against the raw limit of the same size.

use super::drain;
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::raw;
use crate::report::{Report, grouped};

const LANES: usize = 16;

pub(crate) async fn run(events: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!("{} deliveries of 1 kB, and fewer of 64 kB and 256 kB", grouped(events));
    let mut report = Report::new("payloads", what);
    for &kind in kinds {
        for (size, events) in [(1_000, events), (64_000, events / 4), (256_000, events / 16)] {
            let mut lab = Lab::new(kind, LANES).await?;
            let body = payload(size);
            let before = raw::limit(&mut lab, events, body.clone()).await?;
            lab.enqueue(events, &body, None).await?;
            lab.rest().await?;
            let drained = drain(&mut lab, events, &[&["dispatch"]], &mut report).await?;
            let limit = before.max(raw::limit(&mut lab, events, body).await?);
            let name = format!("{}, {} kB", kind.name(), size / 1000);
            report.add(format!("{name}: drained"), drained.rate, "deliveries/s");
            report.add(format!("{name}: ratio"), drained.rate / limit, "of the raw limit");
            report.add_costs(&name, &drained.costs, events);
        }
    }
    Ok(report)
}
