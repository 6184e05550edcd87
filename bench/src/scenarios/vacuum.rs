//! A transaction elsewhere stays open and holds back vacuum, so that what was deleted from the queues stays in the way.

use sqlx::Executor as _;

use super::{Drained, drain};
use crate::Failure;
use crate::lab::{Kind, Lab};
use crate::report::{Bar, Report, grouped};

pub(crate) async fn run(events: usize, turns: usize) -> Result<Report, Failure> {
    let what = format!("{} deliveries while another session holds back vacuum, on Postgres", grouped(events));
    let mut report = Report::new("vacuum", what);
    let (mut free, mut held) = (None, None);
    for _ in 0..turns {
        free = Some(measure(events, false, &mut report).await?.best(free));
        held = Some(measure(events, true, &mut report).await?.best(held));
    }
    let Some((free, held)) = free.zip(held) else { return Err("there is at least one turn".into()) };
    report.add("undisturbed", free.rate, "deliveries/s");
    report.add("held back", held.rate, "deliveries/s");
    report.add_with_bar("ratio", held.rate / free.rate, "x", Bar::AtLeast(0.8));
    report.add_costs("undisturbed", &free.costs, events);
    report.add_costs("held back", &held.costs, events);
    Ok(report)
}

async fn measure(events: usize, is_held: bool, report: &mut Report) -> Result<Drained, Failure> {
    let mut lab = Lab::new(Kind::Postgres, 16).await?;
    lab.fill(events).await?;
    let pool = lab.pool.clone().ok_or("Postgres has a pool")?;
    let mut holder = pool.begin().await?;
    if is_held {
        holder.execute("set transaction isolation level repeatable read").await?;
        holder.execute("select count(*) from postrider.events").await?;
    }
    let drained = drain(&mut lab, events, &[&["dispatch"]], report).await?;
    holder.rollback().await?;
    Ok(drained)
}
