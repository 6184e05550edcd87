//! A steady rate for long, while history is removed as fast as it is made: neither the tables nor the latencies may grow.
//!
//! The command line keeps history for an hour at least, so this does the tidier's steps itself, with a shorter age.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Store;
use postrider::store::Retained;

use super::latency::{WARM_UP, at_rate, warm_up};
use super::{quantile, tally_of_retained};
use crate::Failure;
use crate::lab::{Kind, Lab, megabytes, per_second};
use crate::report::{Bar, Report};

const RATE: usize = 500;

/// What is looked at together: long enough for a 99th percentile.
const WINDOW_SECONDS: usize = 5;

/// A tidier's step, and how much longer than it the rest after it is.
const STEP: u32 = 200;
const REST_FACTOR: u32 = 10;

/// From here on a change of sizes is growth, and not the phase of a vacuum, which comes once a minute.
const LONG: Duration = Duration::from_mins(10);

/// In less there is no start and no end.
const SHORTEST: Duration = Duration::from_secs(30);

/// A stretch of time.
struct Window {
    began: Duration,
    sizes: Vec<(String, u64)>,
    milliseconds: Vec<f64>,
}

pub(crate) async fn run(span: Duration, kinds: &[Kind]) -> Result<Report, Failure> {
    let span = span.max(SHORTEST);
    let age = (span / 12).clamp(Duration::from_secs(5), Duration::from_mins(5));
    let what = format!(
        "{RATE} events per second for {}, each delivered, and removed {} s later; \
         the start is after two such ages and a minute for vacuum",
        postrider::duration::format(span),
        age.as_secs()
    );
    let mut report = Report::new("steady", what);
    for &kind in kinds {
        measure(kind, span, age, &mut report).await?;
    }
    Ok(report)
}

async fn measure(kind: Kind, span: Duration, age: Duration, report: &mut Report) -> Result<(), Failure> {
    let mut lab = Lab::new(kind, 4).await?;
    let dispatcher = lab.start(&["dispatch"])?;
    let mut arrivals = warm_up(&mut lab).await?;
    let mut meter = lab.meter()?;
    meter.watch(dispatcher.process, dispatcher.pid())?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let tidier = tokio::spawn(tidy(Arc::clone(&lab.store), age, stopped));

    let (began, mut windows) = (Instant::now(), Vec::new());
    while began.elapsed() < span {
        let at = began.elapsed();
        let streamed = at_rate(&mut lab, RATE, RATE * WINDOW_SECONDS).await?;
        arrivals.add(streamed.arrivals);
        windows.push(Window { began: at, sizes: lab.sizes().await?, milliseconds: streamed.milliseconds });
    }
    let enqueued = windows.len() * RATE * WINDOW_SECONDS;
    let costs = meter.read()?;
    stop.send(true)?;
    let Tidied { events, deliveries, took } = tidier.await??;
    dispatcher.stop()?;
    let removed = usize::try_from(deliveries)?;
    report.count(tally_of_retained(&mut lab, arrivals, WARM_UP + enqueued, removed).await?);

    let name = kind.name();
    report.add_costs(name, &costs, enqueued);
    let steady_from = (2 * age + Duration::from_mins(1)).min(span * 2 / 3);
    let windows: Vec<Window> = windows.into_iter().filter(|window| window.began >= steady_from).collect();
    let third = windows.len().div_ceil(3);
    let (start, end) = (&windows[..third], &windows[windows.len() - third..]);
    compare(name, start, end, (span >= LONG).then_some(Bar::AtMost(1.2)), report);
    report.add(format!("{name}: could be removed"), per_second(usize::try_from(events)?, took), "events/s");
    Ok(())
}

/// Sizes and latencies at the start and at the end.
fn compare(name: &str, start: &[Window], end: &[Window], bar: Option<Bar>, report: &mut Report) {
    let all = |window: &Window| window.sizes.iter().map(|(_, size)| *size).sum();
    let (before, after) = (mean(start, all), mean(end, all));
    report.add(format!("{name}: size at the start"), before, "MB");
    report.add(format!("{name}: size at the end"), after, "MB");
    report.push(format!("{name}: size"), after / before, "x, from start to end", bar);
    let tables = end.first().map_or(&[][..], |window| &window.sizes);
    for (number, (table, _)) in tables.iter().enumerate() {
        let size = |window: &Window| window.sizes.get(number).map_or(0, |(_, size)| *size);
        let (before, after) = (mean(start, size), mean(end, size));
        // The others have a page or two.
        if before.max(after) > 0.5 {
            report.add(format!("{name}: {table} at the end"), after, "MB");
            report.add(format!("{name}: {table}"), after / before, "x, from start to end");
        }
    }
    for (when, windows) in [("start", start), ("end", end)] {
        let mut milliseconds: Vec<f64> = windows.iter().flat_map(|window| window.milliseconds.clone()).collect();
        milliseconds.sort_by(f64::total_cmp);
        report.add(format!("{name}: median at the {when}"), quantile(&milliseconds, 0.5), "ms");
        report.add(format!("{name}: 99th percentile at the {when}"), quantile(&milliseconds, 0.99), "ms");
    }
}

/// Megabytes.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn mean(windows: &[Window], size: impl Fn(&Window) -> u64) -> f64 {
    windows.iter().map(|window| megabytes(size(window))).sum::<f64>() / windows.len() as f64
}

/// What was removed, and how long that took with its rests.
struct Tidied {
    events: u64,
    deliveries: u64,
    took: Duration,
}

/// Removes what is older than this, in the steps and with the rests of the dispatcher's tidier, until told to stop.
async fn tidy(
    store: Arc<dyn Store>,
    age: Duration,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> Result<Tidied, Failure> {
    let (mut sum, mut place) = (Tidied { events: 0, deliveries: 0, took: Duration::ZERO }, None);
    while !*stopped.borrow() {
        let began = Instant::now();
        let Retained { events, deliveries, next, .. } = store.retain(age, place, STEP).await?;
        sum.events += events;
        sum.deliveries += deliveries;
        place = next;
        let rest = began.elapsed() * REST_FACTOR;
        tokio::time::sleep(rest).await;
        if events > 0 {
            sum.took += began.elapsed();
        }
        if next.is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(sum)
}
