//! What renewing a thousand leases costs the deliveries beside them.

use postrider::NewEvent;

use super::{Drained, drain};
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::report::{Bar, Report, grouped};

const HELD: usize = 1000;

pub(crate) async fn run(events: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "{} deliveries beside {} that are held, renewed every second or every 20 minutes",
        grouped(events),
        grouped(HELD)
    );
    let mut report = Report::new("heartbeats", what);
    for &kind in kinds {
        let (mut often, mut seldom) = (None, None);
        for _ in 0..turns {
            seldom = Some(measure(kind, events, "1h", &mut report).await?.best(seldom));
            often = Some(measure(kind, events, "3s", &mut report).await?.best(often));
        }
        let Some((often, seldom)) = often.zip(seldom) else { return Err("there is at least one turn".into()) };
        let name = kind.name();
        report.add(format!("{name}: renewed every 20 minutes"), seldom.rate, "deliveries/s");
        report.add(format!("{name}: renewed every second"), often.rate, "deliveries/s");
        report.add_with_bar(format!("{name}: ratio"), often.rate / seldom.rate, "x", Bar::AtLeast(0.99));
        report.add_costs(&format!("{name}, every 20 minutes"), &seldom.costs, events);
        report.add_costs(&format!("{name}, every second"), &often.costs, events);
    }
    Ok(report)
}

async fn measure(kind: Kind, events: usize, lease: &str, report: &mut Report) -> Result<Drained, Failure> {
    // Whoever connects is held by the kernel, and never hears anything.
    let hole = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", hole.local_addr()?);
    let mut lab = Lab::new(kind, 16).await?;
    let body = payload(1000);
    let list = std::iter::repeat_with(|| NewEvent::new("bench.event", body.clone()).to(&url)).take(HELD);
    lab.store.enqueue(list.collect()).await?;
    lab.fill(events).await?;
    let held = HELD.to_string();
    let arguments = ["dispatch", "--lease", lease, "--drain-timeout", "100ms", "--timeout", "10m"];
    let limits = ["--connect-timeout", "10m", "--max-in-flight", "2000", "--max-in-flight-per-destination", &held];
    drain(&mut lab, events, &[&[&arguments[..], &limits].concat()], report).await
}
