//! The memory of `serve` while a million deliveries are due and as many wait for their time.

use std::time::Duration;

use jiff::Timestamp;

use super::drain;
use super::end_to_end::until_it_is_ready;
use crate::Failure;
use crate::lab::{Kind, Lab, free_port, megabytes, payload};
use crate::report::{Bar, Report, grouped};

pub(crate) async fn run(size: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!("`serve` delivers {0} that are due while {0} wait for their time", grouped(size));
    let mut report = Report::new("backlog", what);
    for &kind in kinds {
        let mut lab = Lab::new(kind, 16).await?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let arguments = ["serve", "--listen", &address];
        let idle = idle_megabytes(&lab, &arguments, &address).await?;
        lab.enqueue(size, &payload(1000), None).await?;
        let tomorrow = Timestamp::now() + Duration::from_hours(24);
        lab.enqueue(size, &payload(100), Some(tomorrow)).await?;
        lab.rest().await?;
        let drained = drain(&mut lab, size, &[&arguments], &mut report).await?;
        let serve = drained.costs.iter().find(|cost| cost.process == "serve").and_then(|cost| cost.peak_bytes);
        let peak = megabytes(serve.ok_or("the memory of a process is known")?);
        let name = kind.name();
        report.add(format!("{name}: idle on an empty database"), idle, "MB");
        report.add_with_bar(format!("{name}: peak with the backlog"), peak, "MB", Bar::AtMost(150.0));
        report.add(format!("{name}: drained"), drained.rate, "deliveries/s");
        report.add_costs(name, &drained.costs, size);
    }
    Ok(report)
}

async fn idle_megabytes(lab: &Lab, arguments: &[&str], address: &str) -> Result<f64, Failure> {
    let serving = lab.start(arguments)?;
    until_it_is_ready(address).await?;
    let usage = crate::usage::Usage::of(serving.pid())?;
    serving.stop()?;
    Ok(megabytes(usage.peak_bytes))
}
