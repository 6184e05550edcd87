//! Receivers that take their time to answer. How many deliveries per second are possible is then a matter of how many are under
//! way at once, and the raw limit is that of as many clients.

use super::drain;
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::raw;
use crate::report::{Report, grouped};
use crate::sink::Receivers;

/// How many attempts a dispatcher has under way at most.
const SLOTS: usize = 512;

/// How long they take, in milliseconds.
const DELAYS: [u64; 4] = [2, 5, 20, 100];

pub(crate) async fn run(events: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "up to {} deliveries of 1 kB to 16 destinations that take a while to answer, against {SLOTS} clients",
        grouped(events)
    );
    let mut report = Report::new("slow", what);
    for &kind in kinds {
        for answer_after in DELAYS {
            // A few seconds each.
            let events = if answer_after > 20 { events / 4 } else { events }.max(1);
            let (mut limit, mut best) = (0.0_f64, None);
            for _ in 0..turns {
                let mut lab = Lab::with(kind, Receivers { answer_after, ..Receivers::new(16) }).await?;
                limit = limit.max(raw::limit_of(SLOTS, &mut lab, events, payload(1000)).await?);
                lab.fill(events).await?;
                let drained = drain(&mut lab, events, &[&["dispatch"]], &mut report).await?;
                best = Some(drained.best(best));
            }
            let Some(best) = best else { return Err("there is at least one turn".into()) };
            let name = format!("{}, {answer_after} ms", kind.name());
            report.add(format!("{name}: raw limit"), limit, "per second");
            report.add(format!("{name}: drained"), best.rate, "per second");
            report.add(format!("{name}: ratio"), best.rate / limit, "of the raw limit");
            report.add_costs(&name, &best.costs, events);
        }
    }
    Ok(report)
}
