//! What a claim costs when there is much that it should not look at: history, deliveries for later, deliveries that are
//! due but whose turn has not come. Each case is compared, claim by claim in turn, with a database that has nothing but as
//! many deliveries due.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use postrider::lease::{Lease, WorkerId};
use postrider::store::{AttemptResult, ClaimRequest, Settle};
use postrider::{DeliveryFilter, OutcomeKind, Verdict};

use super::median;
use crate::Failure;
use crate::lab::{Kind, Lab, payload};
use crate::report::{Bar, Report, Tally, grouped};

const BATCH: u32 = 100;
const CLAIMS: usize = 200;
/// Not measured: statements are prepared, caches are filled.
const WARM_UP: usize = 10;
const LANES: usize = 16;
/// What is due everywhere.
const DUE: usize = 20 * BATCH as usize;

/// How much of each kind is added, one after the other.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// In all, at each step.
    pub(crate) history: Vec<usize>,
    pub(crate) later: usize,
    pub(crate) due: usize,
}

pub(crate) async fn run(sizes: &Sizes, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!(
        "medians of {CLAIMS} claims of {BATCH} beside more and more, in turn with claims on a database that has only {} due",
        grouped(DUE)
    );
    let mut report = Report::new("growth", what);
    for &kind in kinds {
        let (empty, grown) = (Lab::new(kind, LANES).await?, Lab::new(kind, LANES).await?);
        empty.fill(DUE).await?;
        let (mut cases, mut history) = (Cases { kind, empty, grown, alone: Vec::new() }, 0);
        for &size in &sizes.history {
            // What was due for the last case becomes history as well.
            cases
                .grown
                .enqueue(size.saturating_sub(if history == 0 { 0 } else { history + DUE }), &payload(1000), None)
                .await?;
            settle_all(&cases.grown).await?;
            history = size;
            cases.grown.enqueue(DUE, &payload(1000), None).await?;
            cases.compare(&format!("{} of history", grouped(size)), &mut report).await?;
        }
        let tomorrow = Timestamp::now() + Duration::from_hours(24);
        cases.grown.enqueue(sizes.later, &payload(100), Some(tomorrow)).await?;
        cases.compare(&format!("and {} for later", grouped(sizes.later)), &mut report).await?;
        cases.grown.enqueue(sizes.due, &payload(1000), None).await?;
        cases.compare(&format!("and {} due", grouped(sizes.due)), &mut report).await?;

        report.add(format!("{}: empty", kind.name()), median(cases.alone), "ms");
        let expected = history + DUE + sizes.later + sizes.due;
        let found = usize::try_from(cases.grown.store.count_deliveries(&DeliveryFilter::default()).await?)?;
        report.count(Tally { deliveries: expected, duplicates: 0, lost: expected.saturating_sub(found) });
    }
    Ok(report)
}

/// Two databases that are compared.
struct Cases {
    kind: Kind,
    empty: Lab,
    grown: Lab,
    /// Medians of the empty one.
    alone: Vec<f64>,
}

impl Cases {
    async fn compare(&mut self, what: &str, report: &mut Report) -> Result<(), Failure> {
        self.empty.rest().await?;
        self.grown.rest().await?;
        for _ in 0..WARM_UP {
            claim(&self.empty).await?;
            claim(&self.grown).await?;
        }
        let meter = self.grown.meter()?;
        let (mut alone, mut beside) = (Vec::with_capacity(CLAIMS), Vec::with_capacity(CLAIMS));
        for _ in 0..CLAIMS {
            alone.push(claim(&self.empty).await?);
            beside.push(claim(&self.grown).await?);
        }
        let (alone, beside) = (median(alone), median(beside));
        let name = format!("{}: {what}", self.kind.name());
        report.add_costs(&name, &meter.read()?, CLAIMS * BATCH as usize);
        report.add(name.clone(), beside, "ms");
        report.add_with_bar(name, beside / alone, "x of empty", Bar::AtMost(1.3));
        self.alone.push(alone);
        Ok(())
    }
}

fn worker() -> WorkerId {
    WorkerId::new("bench").expect("a short name")
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: worker(),
        lease: Duration::from_secs(600),
        limit: BATCH,
        lane_limit: BATCH,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    }
}

/// How many milliseconds a claim takes. What was claimed is given back.
async fn claim(lab: &Lab) -> Result<f64, Failure> {
    let began = Instant::now();
    let claimed = lab.store.claim(&request()).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let leases: Vec<_> = claimed.claims.iter().map(|claim| claim.lease).collect();
    if leases.len() != BATCH as usize {
        return Err(format!("{} were claimed", leases.len()).into());
    }
    lab.store.release(&worker(), &leases).await?;
    Ok(took)
}

/// Turns everything that is due into history.
async fn settle_all(lab: &Lab) -> Result<(), Failure> {
    loop {
        let claimed = lab.store.claim(&ClaimRequest { limit: 1000, lane_limit: 1000, ..request() }).await?;
        if claimed.claims.is_empty() {
            return Ok(());
        }
        let settles: Vec<Settle> = claimed.claims.iter().map(|claim| delivered(claim.lease)).collect();
        lab.store.settle(&worker(), &settles).await?;
    }
}

fn delivered(lease: Lease) -> Settle {
    let took = Duration::from_millis(1);
    Settle {
        lease,
        verdict: Verdict::Delivered,
        attempt: AttemptResult {
            outcome: OutcomeKind::Response,
            status_code: Some(200),
            took,
            started_ago: took,
            response_excerpt: None,
            error_detail: None,
        },
        disable_endpoint: false,
        disable_after: None,
    }
}
