//! Judges a trial by what was enqueued, what arrived, what the database holds, and which faults were injected.
//!
//! Each rule is a function that looks at all the [`Evidence`] and complains of what cannot be. The rules know nothing of
//! how Postrider works inside, beyond the protocol: a claim grants a lease under a token, and a lease ends by a settle (the
//! delivery has one attempt more), by a recovery (it was abandoned once more), or by a release (nothing changes).
//!
//! Complaints carry ids and numbers, never payloads.

mod arrivals;
mod leases;
mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::evidence::{AttemptRow, Deed, Grant, Rows, State, Step};
use crate::inbox::Request;
use crate::load::Entry;

/// What the dispatchers were told.
#[derive(Debug, Clone)]
pub struct Terms {
    /// How long a lease is.
    pub lease: Duration,
    /// How often somebody looks for expired ones.
    pub poll: Duration,
    /// The delays between attempts.
    pub schedule: Vec<Duration>,
    /// How many attempts there are at most.
    pub max_attempts: u32,
    /// How many claims in a row may end without a result.
    pub max_abandoned: u32,
    /// What a busy machine may need on top of what is promised.
    pub leeway: Duration,
}

/// Something that was done to the processes or to the database. Instants are microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it began.
    pub at: i64,
    /// When it was over.
    pub until: i64,
    /// Whom it hit; none for the database, which is everybody.
    pub worker: Option<String>,
    /// What it was.
    pub kind: Kind,
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing bad: a dispatcher was started.
    Started,
    /// Killed, as by a power failure.
    Killed,
    /// Ended by itself at a named place.
    Failpoint,
    /// Stopped, and continued later.
    Frozen,
    /// Asked to end.
    Terminated,
    /// The machine was too busy to let anybody run, so that leases may have run out.
    Starved,
    /// The database was stopped in order.
    DatabaseFast,
    /// The database was abandoned on the spot.
    DatabaseImmediate,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "starts of a process",
            Self::Killed => "kill -9",
            Self::Failpoint => "aborts at a named place",
            Self::Frozen => "SIGSTOP beyond the lease, then SIGCONT",
            Self::Terminated => "SIGTERM",
            Self::Starved => "times that the machine stood still by itself",
            Self::DatabaseFast => "Postgres stopped with -m fast",
            Self::DatabaseImmediate => "Postgres stopped with -m immediate",
        })
    }
}

/// All that a trial leaves behind.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// What the dispatchers were told.
    pub terms: Terms,
    /// What became of each enqueue.
    pub ledger: BTreeMap<u64, Entry>,
    /// What arrived.
    pub requests: Vec<Request>,
    /// What the database holds.
    pub rows: Rows,
    /// What was done.
    pub faults: Vec<Fault>,
}

/// Something that a promise forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// Which promise, or which rule.
    pub rule: &'static str,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// What a trial came to.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// What is wrong.
    pub complaints: Vec<Complaint>,
    /// What was counted and measured.
    pub figures: Figures,
}

/// Counts and measurements.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Enqueues that were acknowledged.
    pub acknowledged: usize,
    /// Enqueues that were taken back.
    pub rolled_back: usize,
    /// Enqueues whose caller never learned their end.
    pub unknown: usize,
    /// Deliveries that arrived.
    pub delivered: usize,
    /// Deliveries that were given up.
    pub dead: usize,
    /// Of those, how many because nobody ever settled them.
    pub quarantined: usize,
    /// Leases granted.
    pub claims: usize,
    /// Leases settled.
    pub settled: usize,
    /// Leases taken back after they expired.
    pub abandoned: usize,
    /// Leases given back.
    pub released: usize,
    /// Requests that arrived.
    pub requests: usize,
    /// Requests that arrived although no attempt came of them.
    pub unsettled_requests: usize,
    /// How late a lease was taken back, at most: after it expired, or after somebody was there again to do so.
    pub latest_recovery: Duration,
    /// The same, until the delivery was claimed anew.
    pub latest_takeover: Duration,
}

impl Figures {
    /// Counts of two trials together.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.rolled_back += other.rolled_back;
        self.unknown += other.unknown;
        self.delivered += other.delivered;
        self.dead += other.dead;
        self.quarantined += other.quarantined;
        self.claims += other.claims;
        self.settled += other.settled;
        self.abandoned += other.abandoned;
        self.released += other.released;
        self.requests += other.requests;
        self.unsettled_requests += other.unsettled_requests;
        self.latest_recovery = self.latest_recovery.max(other.latest_recovery);
        self.latest_takeover = self.latest_takeover.max(other.latest_takeover);
    }
}

const LOST: &str = "P1 nothing acknowledged is lost";
const COMMITTED: &str = "P2 an event exists if and only if its transaction committed";
const ONE: &str = "P3 one lease at a time";
const EARLY: &str = "P3 a lease is not taken back before it expired";
const HOLDER: &str = "P4 only the holder of the lease settles";
const FINAL: &str = "P6 settled is final";
const ATTEMPTS: &str = "P7 one attempt row per attempt";
const TIME: &str = "P8 the next attempt is on time";
const DEATH: &str = "P9 the last failure kills, and is announced once";
const TAKEOVER: &str = "P11 taken over in time";
const FRESH: &str = "P19 same id, fresh signature";
const ENDS: &str = "every delivery ends";
const ANSWERED: &str = "delivered means that the receiver said so";
const EXPLAINED: &str = "requests are explained by claims, and lost leases by faults";

/// The names of all rules.
pub const RULES: [&str; 14] =
    [LOST, COMMITTED, ONE, EARLY, HOLDER, FINAL, ATTEMPTS, TIME, DEATH, TAKEOVER, FRESH, ENDS, ANSWERED, EXPLAINED];

/// Applies all rules.
pub fn judge(evidence: &Evidence) -> Verdict {
    let case = Case::new(evidence);
    let mut verdict = Verdict::default();
    for rule in [
        records::nothing_is_lost,
        records::exists_iff_committed,
        records::one_row_per_attempt,
        records::deaths_are_announced_once,
        records::every_delivery_ends,
        leases::one_at_a_time,
        leases::only_the_holder_settles,
        leases::settled_is_final,
        leases::next_attempt_is_on_time,
        leases::taken_over_in_time,
        arrivals::ids_and_signatures,
        arrivals::delivered_was_answered_so,
        arrivals::requests_are_explained,
    ] {
        rule(&case, &mut verdict);
    }
    verdict
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Settled(State),
    Abandoned(State),
    Released,
    Open,
}

/// One lease from its claim to its end.
#[derive(Debug, Clone)]
struct Tenure<'a> {
    grant: &'a Grant,
    claimed_at: i64,
    /// Until when it held in the end, after all renewals.
    until: i64,
    ended_at: i64,
    end: End,
}

/// The evidence, sorted by delivery.
struct Case<'a> {
    evidence: &'a Evidence,
    steps: BTreeMap<Uuid, Vec<&'a Step>>,
    tenures: BTreeMap<Uuid, Vec<Tenure<'a>>>,
    attempts: BTreeMap<Uuid, Vec<&'a AttemptRow>>,
    requests: BTreeMap<Uuid, Vec<&'a Request>>,
}

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut steps: BTreeMap<Uuid, Vec<&Step>> = BTreeMap::new();
        for step in &evidence.rows.history {
            steps.entry(step.delivery_id).or_default().push(step);
        }
        let tenures = steps.iter().map(|(id, steps)| (*id, tenures(steps))).collect();
        let mut attempts: BTreeMap<Uuid, Vec<&AttemptRow>> = BTreeMap::new();
        for attempt in &evidence.rows.attempts {
            attempts.entry(attempt.delivery_id).or_default().push(attempt);
        }
        let mut requests: BTreeMap<Uuid, Vec<&Request>> = BTreeMap::new();
        for request in &evidence.requests {
            requests.entry(request.delivery).or_default().push(request);
        }
        Self { evidence, steps, tenures, attempts, requests }
    }

    fn attempts_of(&self, id: Uuid) -> &[&'a AttemptRow] {
        self.attempts.get(&id).map_or(&[], Vec::as_slice)
    }

    fn requests_of(&self, id: Uuid) -> &[&'a Request] {
        self.requests.get(&id).map_or(&[], Vec::as_slice)
    }

    fn tenures_of(&self, id: Uuid) -> &[Tenure<'a>] {
        self.tenures.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// Puts claims, ends and changes of one delivery together. What does not fit is left to the rules.
fn tenures<'a>(steps: &[&'a Step]) -> Vec<Tenure<'a>> {
    let mut tenures: Vec<Tenure<'a>> = Vec::new();
    let mut steps = steps.iter().peekable();
    while let Some(step) = steps.next() {
        match &step.deed {
            Deed::Claimed(grant) => tenures.push(Tenure {
                grant,
                claimed_at: step.at,
                until: grant.until,
                ended_at: i64::MAX,
                end: End::Open,
            }),
            Deed::Ended(grant) => {
                let Some(tenure) = tenures.iter_mut().rev().find(|tenure| tenure.grant.token == grant.token) else {
                    continue;
                };
                (tenure.until, tenure.ended_at) = (grant.until, step.at);
                tenure.end = match steps.peek().map(|next| &next.deed) {
                    Some(Deed::Changed { before, after }) if after.attempt_count > before.attempt_count => {
                        End::Settled(after.clone())
                    }
                    Some(Deed::Changed { before, after }) if after.abandoned_count > before.abandoned_count => {
                        End::Abandoned(after.clone())
                    }
                    _ => End::Released,
                };
            }
            Deed::Changed { .. } => {}
        }
    }
    tenures
}

impl Verdict {
    fn complain(&mut self, rule: &'static str, detail: impl Into<String>) {
        debug_assert!(RULES.contains(&rule), "{rule} is listed");
        self.complaints.push(Complaint { rule, detail: detail.into() });
    }

    /// The first complaints, one per line, and how many there are.
    pub fn told(&self) -> String {
        let shown: Vec<String> = self.complaints.iter().take(20).map(ToString::to_string).collect();
        format!("{} complaints\n{}", self.complaints.len(), shown.join("\n"))
    }
}
