//! How long it takes from an enqueue to the receiver, at a steady rate.
//!
//! The clock starts before the enqueue's transaction does, so its commit is included.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::NewEvent;
use tokio::task::JoinSet;

use super::{quantile, tally};
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::report::{Bar, Report, grouped};
use crate::sink::{Arrivals, now};

/// The first few find cold caches and no connection, and are not looked at.
pub(super) const WARM_UP: usize = 20;

pub(crate) async fn run(seconds: usize, rates: &[usize], kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "from before the enqueue, each a transaction of its own, to the receiver, for {seconds} s at a steady rate"
    );
    let mut report = Report::new("latency", what);
    for &kind in kinds {
        for &rate in rates {
            let name = format!("{} at {}/s", kind.name(), grouped(rate));
            let mut lab = Lab::new(kind, 4).await?;
            let Streamed { milliseconds, .. } = stream(&mut lab, rate, rate * seconds, &name, &mut report).await?;
            let bar = |bar| (rate == 100).then_some(Bar::AtMost(bar));
            report.push(format!("{name}: median"), quantile(&milliseconds, 0.5), "ms", bar(5.0));
            report.push(format!("{name}: 99th percentile"), quantile(&milliseconds, 0.99), "ms", bar(20.0));
        }
    }
    Ok(report)
}

/// Events that were enqueued at a rate.
pub(super) struct Streamed {
    /// How long each took to arrive, sorted.
    pub(super) milliseconds: Vec<f64>,
    pub(super) arrivals: Arrivals,
}

/// A dispatcher delivers events that are enqueued at a rate. Its costs are told under a name.
pub(super) async fn stream(
    lab: &mut Lab,
    rate: usize,
    events: usize,
    name: &str,
    report: &mut Report,
) -> Result<Streamed, Failure> {
    // What never answers need not be waited for.
    let dispatcher = lab.start(&["dispatch", "--drain-timeout", "1s"])?;
    let mut arrivals = warm_up(lab).await?;
    let mut meter = lab.meter()?;
    meter.watch(dispatcher.process, dispatcher.pid())?;
    let streamed = at_rate(lab, rate, events).await?;
    report.add_costs(name, &meter.read()?, events);
    dispatcher.stop()?;
    arrivals.add(streamed.arrivals);
    report.count(tally(lab, arrivals, WARM_UP + events).await?);
    Ok(Streamed { arrivals: Arrivals::default(), ..streamed })
}

/// A dispatcher that was just started delivers a few events.
pub(super) async fn warm_up(lab: &mut Lab) -> Result<Arrivals, Failure> {
    for number in 0..WARM_UP {
        let url = &lab.sink.urls[number % lab.sink.urls.len()];
        lab.store.enqueue(vec![NewEvent::new("bench.event", payload(1000)).to(url)]).await?;
    }
    lab.arrived(WARM_UP).await
}

/// Enqueues events at a rate, each in a transaction of its own, and waits until they have arrived.
pub(super) async fn at_rate(lab: &mut Lab, rate: usize, events: usize) -> Result<Streamed, Failure> {
    let body = payload(1000);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    let mut enqueues = JoinSet::new();
    for number in 0..events {
        tick.tick().await;
        let event = NewEvent::new("bench.event", body.clone()).to(&lab.sink.urls[number % lab.sink.urls.len()]);
        let store = Arc::clone(&lab.store);
        enqueues.spawn(async move {
            let began = now();
            let result = store.enqueue(vec![event]).await;
            result.map(|enqueued| (enqueued[0].deliveries()[0].id.to_string(), began))
        });
    }
    let began = enqueues.join_all().await.into_iter().collect::<Result<HashMap<_, _>, _>>()?;
    let arrivals = lab.arrived(events).await?;
    let took = |(id, at): (&String, &u64)| began.get(id).map(|began| Duration::from_nanos(at.saturating_sub(*began)));
    let took = arrivals.first.iter().filter_map(took);
    let mut milliseconds: Vec<f64> = took.map(|took| took.as_secs_f64() * 1e3).collect();
    milliseconds.sort_by(f64::total_cmp);
    Ok(Streamed { milliseconds, arrivals })
}
