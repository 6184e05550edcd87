//! A backlog is delivered: how much of the raw limit is left once everything is leased, signed, settled and recorded.

use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::raw;
use crate::report::{Bar, Report, grouped};

pub(super) const DESTINATIONS: usize = 16;

pub(crate) async fn run(events: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "{} deliveries of 1 kB to {DESTINATIONS} destinations, and to one, claimed, signed, sent, settled and recorded",
        grouped(events)
    );
    let mut report = Report::new("drain", what);
    for &kind in kinds {
        let bar = Bar::AtLeast(if kind == Kind::Postgres { 0.35 } else { 0.5 });
        for destinations in [DESTINATIONS, 1] {
            compare(kind, false, destinations, events, turns, Some(bar), &mut report).await?;
        }
    }
    Ok(report)
}

/// Delivers a backlog between two looks at the raw limit, several times, and compares the best of both.
pub(super) async fn compare(
    kind: Kind,
    with_tls: bool,
    destinations: usize,
    events: usize,
    turns: usize,
    bar: Option<Bar>,
    report: &mut Report,
) -> Result<(), Failure> {
    let (mut limit, mut best) = (0.0_f64, None);
    for _ in 0..turns {
        let lab = if with_tls { Lab::with_tls(kind, destinations).await } else { Lab::new(kind, destinations).await };
        let mut lab = lab?;
        limit = limit.max(raw::limit(&mut lab, events, payload(1000)).await?);
        lab.fill(events).await?;
        let drained = super::drain(&mut lab, events, &[&["dispatch"]], report).await?;
        best = Some(drained.best(best));
        limit = limit.max(raw::limit(&mut lab, events, payload(1000)).await?);
    }
    let Some(best) = best else { return Err("there is at least one turn".into()) };
    let name = if destinations == 1 { format!("{}, one destination", kind.name()) } else { kind.name().to_owned() };
    report.add(format!("{name}: raw limit"), limit, "per second");
    report.add(format!("{name}: drained"), best.rate, "per second");
    report.push(format!("{name}: ratio"), best.rate / limit, "of the raw limit", bar);
    report.add_costs(&name, &best.costs, events);
    Ok(())
}
