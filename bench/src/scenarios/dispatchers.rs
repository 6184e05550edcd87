//! One, two and four dispatchers on one Postgres. On a machine whose cores are all busy more of them cannot be faster; what
//! is looked for is that they do not get in each other's way.

use super::{Drained, drain};
use crate::Failure;
use crate::lab::{Kind, Lab};
use crate::report::{Bar, Report, grouped};

const COUNTS: [usize; 3] = [1, 2, 4];

pub(crate) async fn run(events: usize, turns: usize) -> Result<Report, Failure> {
    let what = format!("{} deliveries by one, two and four dispatchers on one Postgres", grouped(events));
    let mut report = Report::new("dispatchers", what);
    let mut best: [Option<Drained>; 3] = [None, None, None];
    for _ in 0..turns {
        for (count, best) in COUNTS.into_iter().zip(&mut best) {
            let mut lab = Lab::new(Kind::Postgres, 16).await?;
            lab.fill(events).await?;
            let processes: Vec<&[&str]> = vec![&["dispatch"]; count];
            let drained = drain(&mut lab, events, &processes, &mut report).await?;
            *best = Some(drained.best(best.take()));
        }
    }
    let mut alone = None;
    for (count, best) in COUNTS.into_iter().zip(best.into_iter().flatten()) {
        let name = if count == 1 { "one".to_owned() } else { format!("{count} dispatchers") };
        report.add(name.clone(), best.rate, "deliveries/s");
        report.add_costs(&name, &best.costs, events);
        match alone {
            None => alone = Some(best.rate),
            Some(alone) => {
                report.add_with_bar(format!("{name}: ratio"), best.rate / alone, "of one", Bar::AtLeast(0.8));
            }
        }
    }
    Ok(report)
}
