//! The same number of deliveries, from many events to one endpoint each or from few events to a hundred.

use std::time::Instant;

use postrider::NewEvent;

use super::drain;
use crate::Failure;
use crate::lab::{Kind, Lab, payload, per_second};
use crate::report::{Report, grouped};

pub(crate) async fn run(deliveries: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!("{} deliveries, from events to 1, 10 and 100 endpoints", grouped(deliveries));
    let mut report = Report::new("fan-out", what);
    for &kind in kinds {
        let mut alone = None;
        for endpoints in [1, 10, 100] {
            let mut lab = Lab::new(kind, endpoints).await?;
            for url in &lab.sink.urls {
                lab.run(&["endpoints", "add", url, "--json"])?;
            }
            let events = deliveries / endpoints;
            let body = payload(1000);
            let began = Instant::now();
            for first in (0..events).step_by(100) {
                let list = (first..events.min(first + 100)).map(|_| NewEvent::new("bench.event", body.clone()));
                lab.store.enqueue(list.collect()).await?;
            }
            let enqueued = per_second(events * endpoints, began.elapsed());
            lab.rest().await?;
            let drained = drain(&mut lab, events * endpoints, &[&["dispatch"]], &mut report).await?;
            let name = format!("{}, 1 to {endpoints}", kind.name());
            report.add(format!("{name}: enqueued"), enqueued, "deliveries/s");
            report.add(format!("{name}: drained"), drained.rate, "deliveries/s");
            let one_to_one = *alone.get_or_insert(drained.rate);
            report.add(format!("{name}: ratio"), drained.rate / one_to_one, "of 1 to 1");
            report.add_costs(&name, &drained.costs, events * endpoints);
        }
    }
    Ok(report)
}
