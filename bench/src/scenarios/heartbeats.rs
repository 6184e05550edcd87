//! What renewing a thousand leases costs the deliveries beside them.
//!
//! A drain keeps all cores busy, so what renewals take of the processors they take of its rate. The rates of two drains differ by
//! some hundredths even if nothing else does. So drains are made in pairs, one right after the other, in changing order, and
//! what counts is the ratio within a pair, the median of all; and the processor time of renewals is also measured by itself, with nothing
//! else to do. That leaves out what a drain has besides: its own leases, which are renewed as well.

use std::net::TcpListener;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use postrider::NewEvent;

use super::{Drained, drain, median};
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::report::{Bar, Report, grouped};

const HELD: usize = 1000;

/// How long a dispatcher may take to hold them all.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(events: usize, turns: usize, span: Duration, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "{} deliveries beside {} that are held, renewed every second or every 20 minutes; and those alone for {span:?}",
        grouped(events),
        grouped(HELD)
    );
    #[expect(clippy::cast_precision_loss, reason = "a number of cores")]
    let cores = available_parallelism()?.get() as f64;
    let mut report = Report::new("heartbeats", what);
    for &kind in kinds {
        let (mut often, mut seldom, mut ratios) = (None, None, Vec::new());
        for turn in 0..turns {
            let mut rates = [0.0, 0.0];
            for step in 0..2 {
                let is_often = (turn + step) % 2 == 1;
                let (lease, best) = if is_often { ("3s", &mut often) } else { ("1h", &mut seldom) };
                let drained = measure(kind, events, lease, &mut report).await?;
                rates[usize::from(is_often)] = drained.rate;
                *best = Some(drained.best(best.take()));
            }
            ratios.push(rates[1] / rates[0]);
        }
        let Some((often, seldom)) = often.zip(seldom) else { return Err("there is at least one turn".into()) };
        let name = kind.name();
        report.add(format!("{name}: renewed every 20 minutes"), seldom.rate, "deliveries/s");
        report.add(format!("{name}: renewed every second"), often.rate, "deliveries/s");
        report.add_with_bar(format!("{name}: ratio"), median(ratios), "x", Bar::AtLeast(0.99));
        let renewing = alone(kind, "3s", span).await? - alone(kind, "1h", span).await?;
        let share = renewing / (cores * span.as_secs_f64());
        report.add_with_bar(format!("{name}: renewals"), share * 100.0, "% of the processors", Bar::AtMost(1.0));
        report.add_costs(&format!("{name}, every 20 minutes"), &seldom.costs, events);
        report.add_costs(&format!("{name}, every second"), &often.costs, events);
    }
    Ok(report)
}

async fn measure(kind: Kind, events: usize, lease: &str, report: &mut Report) -> Result<Drained, Failure> {
    let mut lab = Lab::new(kind, 16).await?;
    let _hole = hold(&lab).await?;
    lab.fill(events).await?;
    drain(&mut lab, events, &[&arguments(lease)], report).await
}

/// The processor time of all processes for so long, while a dispatcher holds the leases and does nothing else.
async fn alone(kind: Kind, lease: &str, span: Duration) -> Result<f64, Failure> {
    let lab = Lab::new(kind, 1).await?;
    let _hole = hold(&lab).await?;
    let dispatcher = lab.start(&arguments(lease))?;
    let deadline = Instant::now() + PATIENCE;
    while lab.store.overview(None).await?.in_flight < HELD as u64 {
        if Instant::now() > deadline {
            return Err(format!("the dispatcher does not hold {HELD} leases").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut meter = lab.meter()?;
    meter.watch(dispatcher.process, dispatcher.pid())?;
    tokio::time::sleep(span).await;
    let costs = meter.read()?;
    dispatcher.stop()?;
    Ok(costs.iter().map(|cost| cost.cpu_seconds).sum())
}

/// Enqueues what will be held: whoever connects there is held by the kernel, and never hears anything.
async fn hold(lab: &Lab) -> Result<TcpListener, Failure> {
    let hole = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", hole.local_addr()?);
    let body = payload(1000);
    let list = std::iter::repeat_with(|| NewEvent::new("bench.event", body.clone()).to(&url)).take(HELD);
    lab.store.enqueue(list.collect()).await?;
    Ok(hole)
}

fn arguments(lease: &str) -> [&str; 13] {
    let [held, all] = ["1000", "2000"];
    [
        "dispatch",
        "--lease",
        lease,
        "--drain-timeout",
        "100ms",
        "--timeout",
        "10m",
        "--connect-timeout",
        "10m",
        "--max-in-flight",
        all,
        "--max-in-flight-per-destination",
        held,
    ]
}
