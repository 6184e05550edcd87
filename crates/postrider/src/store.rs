//! The one seam to a database.
//!
//! # The contract
//!
//! A store keeps events, deliveries, leases, attempts, dead letters, endpoints, announcements and an audit trail, and
//! every delivery is in **exactly one place**: *ready* (due, unclaimed), *scheduled* (not yet due), *leased* (claimed),
//! or settled (delivered, dead, cancelled). Each method below is atomic: it happens entirely or not at all, and what it
//! reported as done survives a crash.
//!
//! - **Time is the store's.** Durations come in, instants go out; a caller's wall clock has no effect on anything.
//! - **A lease is a row.** `claim` creates it with a fresh random token; `settle`, `release`, `recover` and an
//!   operator's `cancel` delete it. Whoever deletes it decides; everyone after finds nothing and changes nothing.
//! - **Order.** Within a lane, deliveries become claimable in the order in which they became due. Between lanes, a claim
//!   takes turns.
//! - **Refusals are values.** A lost lease, a duplicate, an operator's action that the state forbids: all are `Ok`.
//!   `Err` means that the store could not do its work, and says whether trying again can help.
//!
//! Enqueueing inside the caller's own transaction is not here, since transaction types differ between databases: each
//! store has an inherent method for it. [`Store::enqueue`] is the same in a transaction of its own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use crate::announcement::Announcement;
use crate::api_key::{ApiKey, KeyDigest, NewApiKey};
use crate::delivery::{Delivery, DeliveryDetail, DeliveryFilter, DeliveryStatus, Page, PageRequest};
use crate::endpoint::{Endpoint, EndpointFilter, EndpointStatus, NewEndpoint};
use crate::event::{EnqueueError, Enqueued, Event, EventFilter, NewEvent};
use crate::ids::{DeliveryId, EndpointId, EventId, KeyId};
use crate::lease::{Lease, WorkerId};
use crate::once::{OnceClaim, OnceCursor, OnceFilter, OncePage};
use crate::outcome::{OutcomeKind, Verdict};
use crate::refusal::Refusal;

/// A database that keeps deliveries. See the [module](self) for the contract that all methods share.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Enqueues the events, all or none, in one transaction of the store's own. One result each, in order. An event
    /// whose idempotency key is known, also from earlier in the same list, is a duplicate; if its content differs,
    /// nothing at all is written. An event that loses its claim on a subject, also to one earlier in the list, is not
    /// written, and that is no error.
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError>;

    /// Enqueues events that have nothing to do with each other in one transaction: one that is refused, or whose idempotency
    /// key belongs to other content, says so and does not touch the others. An error of the store is for all of them; one
    /// that waits too long for somebody else's transaction makes it [contended](StoreErrorCode::Contended).
    async fn enqueue_each(&self, events: Vec<NewEvent>) -> Result<Vec<Result<Enqueued, EnqueueError>>, StoreError>;

    /// Called once when a dispatcher starts, which keeps the guard while it runs. A store that only one dispatcher may
    /// work on takes its lock here, gives back the leases that an earlier one left behind, and lets the lock go when the
    /// guard is dropped.
    async fn start_dispatching(&self, worker: &WorkerId) -> Result<DispatchGuard, StoreError>;

    /// Takes up to `limit` ready deliveries and grants a lease on each. Lanes take turns, beginning after the
    /// request's cursor; no lane gets more than it may have; lanes of endpoints that are not active are passed
    /// over. Two concurrent claims never return the same delivery, and never wait for each other. A store may bring fewer
    /// at once than there are, and then has a cursor.
    ///
    /// An endpoint's own in-flight and rate limits hold for all dispatchers together, however many claim at once.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError>;

    /// Extends the leases that `worker` still holds under exactly these tokens to `lease` from now, never backwards,
    /// and returns those. What is missing from the answer was settled or lost.
    async fn renew(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Result<Vec<Lease>, StoreError>;

    /// Consumes each lease with the result of its attempt: writes the attempt, moves the delivery, records the
    /// announcement. One answer each, in order. Safe to repeat when an answer was lost.
    async fn settle(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>, StoreError>;

    /// Gives leases back unused: the deliveries are ready again at once, nothing is counted. Returns how many.
    async fn release(&self, worker: &WorkerId, leases: &[Lease]) -> Result<u64, StoreError>;

    /// Takes back up to `limit` expired leases. Their deliveries are ready again with `abandoned_count` one higher;
    /// those that were abandoned `max_abandoned` times in a row are dead instead.
    async fn recover(&self, limit: u32, max_abandoned: u32) -> Result<Recovered, StoreError>;

    /// Makes up to `limit` scheduled deliveries whose time has come ready.
    async fn promote(&self, limit: u32) -> Result<Promoted, StoreError>;

    /// Returns when deliveries may have become ready, or after `timeout`, whichever is first. It may return early, and
    /// it may miss something that became ready just before; callers poll as well.
    async fn wait_ready(&self, timeout: Duration);

    /// Makes a settled or failed delivery due now. A dead or cancelled one starts a new round of attempts from 0; a
    /// failed one keeps its count. Audited under the operator's name.
    async fn retry(&self, id: DeliveryId, operator: &Operator) -> Result<Action, StoreError>;

    /// Makes the oldest up to `limit` deliveries that match due now, as [`Store::retry`] does, in one transaction.
    /// Returns how many; call again until it returns 0.
    async fn retry_matching(&self, filter: &DeliveryFilter, limit: u32, operator: &Operator)
    -> Result<u64, StoreError>;

    /// Stops an unsettled delivery, also while it is leased: the attempt under way finds its lease gone. Audited.
    async fn cancel(&self, id: DeliveryId, reason: &str, operator: &Operator) -> Result<Action, StoreError>;

    /// One delivery with its attempts.
    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError>;

    /// Deliveries that match, newest first. For one page no more are looked at than it says, so that it may have few rows or
    /// none where few match, and still a next one.
    async fn deliveries(&self, filter: &DeliveryFilter, page: &PageRequest) -> Result<Page<Delivery>, StoreError>;

    /// How many match; counted exactly.
    async fn count_deliveries(&self, filter: &DeliveryFilter) -> Result<u64, StoreError>;

    /// Events that match with their payloads and deliveries, newest first. A page ends before its limit when its payloads
    /// come to more than `max_bytes`, but has at least one event if one is found. As many are looked at as for a page of
    /// deliveries.
    async fn events(
        &self,
        filter: &EventFilter,
        page: &PageRequest,
        max_bytes: usize,
    ) -> Result<Page<Event>, StoreError>;

    /// One event with its payload and deliveries.
    async fn event(&self, id: EventId) -> Result<Option<Event>, StoreError>;

    /// What is where right now; of one tenant, or of all.
    async fn overview(&self, tenant: Option<&str>) -> Result<Overview, StoreError>;

    /// How a subject stands; none when it was never claimed nor reset.
    async fn once(&self, tenant: &str, subject: &str) -> Result<Option<OnceClaim>, StoreError>;

    /// How subjects stand that match, by tenant and subject in the order of the database. Of each there is the current
    /// generation. As many are looked at as for a page of deliveries.
    async fn once_claims(
        &self,
        filter: &OnceFilter,
        after: Option<&OnceCursor>,
        page: &PageRequest,
    ) -> Result<OncePage, StoreError>;

    /// Begins the next generation of a subject, also of one that nobody has claimed yet, and returns it. Audited.
    async fn reset_once(&self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64, StoreError>;

    /// Registers an endpoint. Audited.
    async fn create_endpoint(&self, endpoint: NewEndpoint, operator: &Operator) -> Result<Endpoint, StoreError>;

    /// One endpoint. One that was removed is not there any more.
    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>, StoreError>;

    /// Endpoints that match, newest first.
    async fn endpoints(&self, filter: &EndpointFilter, page: &PageRequest) -> Result<Page<Endpoint>, StoreError>;

    /// Writes an endpoint's URL, event types and settings if its revision is still the one in `endpoint`, and returns it
    /// with the next one. None when somebody else has changed it meanwhile, or it is gone. Deliveries that exist keep their
    /// destination; they are signed and treated by the new settings. Audited.
    async fn replace_endpoint(
        &self,
        endpoint: &Endpoint,
        change: EndpointChange,
        operator: &Operator,
    ) -> Result<Option<Endpoint>, StoreError>;

    /// Removes an endpoint with its secrets: nothing is sent to it any more, and no event reaches it. What of its deliveries
    /// is ready or scheduled is cancelled, here or by a later [`retain`](Store::retain). False when there is none. Audited.
    async fn remove_endpoint(&self, id: EndpointId, operator: &Operator) -> Result<bool, StoreError>;

    /// Pauses, resumes or disables an endpoint. False when there is none.
    async fn set_endpoint_status(
        &self,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
        operator: &Operator,
    ) -> Result<bool, StoreError>;

    /// Announcements after a place, in an order in which none is ever missed: a later call with the returned place
    /// returns everything that this one did not, also what was committed out of order.
    async fn announcements(&self, after: &FeedPlace, limit: u32) -> Result<Announced, StoreError>;

    /// The place after everything that is recorded now.
    async fn announcements_end(&self) -> Result<FeedPlace, StoreError>;

    /// Returns when something may have been announced, or after `timeout`.
    async fn wait_announced(&self, timeout: Duration);

    /// Makes a key. None when it should have been the first and there is one already. Audited.
    async fn create_key(&self, key: NewApiKey, operator: &Operator) -> Result<Option<ApiKey>, StoreError>;

    /// Keys, also revoked ones, newest first; those of one tenant, or all.
    async fn keys(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<ApiKey>, StoreError>;

    /// The key of this digest, if there is one that is not revoked.
    async fn key_of_digest(&self, digest: &KeyDigest) -> Result<Option<ApiKey>, StoreError>;

    /// Revokes a key, of this tenant or of any. False when there is none that is not revoked. Audited.
    async fn revoke_key(&self, id: KeyId, tenant: Option<&str>, operator: &Operator) -> Result<bool, StoreError>;

    /// The audit trail, newest first: what operators did, to one tenant's things, or to all.
    async fn audit(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>, StoreError>;

    /// Whether the store can be worked with: it answers, and its schema is the one that this program knows.
    async fn health(&self) -> Result<Health, StoreError>;

    /// What an operator should know about the database: settings that are bad for it, trouble that is on its way. It looks
    /// at more than [`health`](Store::health) does, and may take a while.
    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError>;

    /// Removes up to `limit` events older than `older_than` of which every delivery is delivered or cancelled, with
    /// their deliveries and attempts, announcements that old, and generations of subjects that ended that long ago.
    /// Dead letters and whatever is unsettled stay, and so do idempotency keys. It also cancels up to `limit` deliveries
    /// that were left of removed endpoints. Call again with the returned place until there is none.
    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained, StoreError>;
}

/// Kept by a dispatcher while it runs: what the store must hold for it, if anything.
pub struct DispatchGuard(Option<Box<dyn Send + Sync>>);

impl DispatchGuard {
    /// A guard that holds nothing: any number of dispatchers may work on the store.
    pub fn none() -> Self {
        Self(None)
    }

    /// A guard that holds this until it is dropped.
    pub fn holding(lock: impl Send + Sync + 'static) -> Self {
        Self(Some(Box::new(lock)))
    }
}

impl fmt::Debug for DispatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DispatchGuard").field(&self.0.is_some()).finish()
    }
}

/// What fairness is counted by: an endpoint, or the host of a bare destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub String);

impl Lane {
    /// The lane of an endpoint.
    pub fn of_endpoint(id: EndpointId) -> Self {
        Self(id.as_uuid().to_string())
    }
}

/// How much to claim, for whom.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who will hold the leases.
    pub worker: WorkerId,
    /// How long they last.
    pub lease: Duration,
    /// At most this many.
    pub limit: u32,
    /// At most this many in flight per lane, unless the lane's endpoint has a lower limit of its own.
    pub lane_limit: u32,
    /// How many the caller has in flight, per lane; what is not listed has none.
    pub in_flight: Vec<(Lane, u32)>,
    /// How many more than `lane_limit` these lanes may have in flight: the caller keeps them until there is a slot. Not where
    /// the lane's endpoint has a limit of its own, in flight or per second.
    pub ahead: Vec<(Lane, u32)>,
    /// The lane after which to begin.
    pub after: Option<Lane>,
}

/// What a claim took.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The deliveries.
    pub claims: Vec<Claim>,
    /// The last lane that was looked at, to begin after next time; none when the end was reached.
    pub cursor: Option<Lane>,
    /// The database's time of the claim.
    pub at: Timestamp,
    /// Something was left behind only because its endpoint's rate limit was reached: after this long there is a token
    /// again.
    pub next_token_in: Option<Duration>,
}

/// One leased delivery, with all that an attempt needs.
#[derive(Clone)]
pub struct Claim {
    /// The right to settle it.
    pub lease: Lease,
    /// Its lane.
    pub lane: Lane,
    /// Whose it is.
    pub tenant: String,
    /// Its event.
    pub event_id: EventId,
    /// The event's type.
    pub event_type: String,
    /// The bytes to send.
    pub payload: Bytes,
    /// Where to.
    pub destination_url: String,
    /// Attempts settled in this round.
    pub attempt_count: u32,
    /// Attempts settled in earlier rounds.
    pub earlier_attempts: u32,
    /// Claims in a row that ended without a result.
    pub abandoned_count: u32,
    /// The endpoint as it is now; shared between the claims of one endpoint.
    pub endpoint: Option<Arc<Endpoint>>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("lease", &self.lease)
            .field("lane", &self.lane)
            .field("event_id", &self.event_id)
            .field("payload_bytes", &self.payload.len())
            .field("destination_url", &self.destination_url)
            .field("attempt_count", &self.attempt_count)
            .finish_non_exhaustive()
    }
}

/// The result of one attempt, to be settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Under which lease.
    pub lease: Lease,
    /// What is to be done with the delivery.
    pub verdict: Verdict,
    /// The attempt, for the history.
    pub attempt: AttemptResult,
    /// The endpoint said that it is gone.
    pub disable_endpoint: bool,
    /// Disable the endpoint if this failure is one of a row that began at least this long ago.
    pub disable_after: Option<Duration>,
}

/// An attempt, as it is reported by its worker: in durations, since the store has the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptResult {
    /// What happened.
    pub outcome: OutcomeKind,
    /// The answer's status.
    pub status_code: Option<u16>,
    /// How long it took.
    pub took: Duration,
    /// How long ago it began.
    pub started_ago: Duration,
    /// The first bytes of the answer.
    pub response_excerpt: Option<String>,
    /// Why it failed.
    pub error_detail: Option<String>,
}

/// What became of one settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It took effect.
    Applied,
    /// It had taken effect before; the answer to that call was lost.
    AppliedEarlier,
    /// The lease was no longer there. Nothing changed.
    LeaseLost,
}

/// What a recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Leases that had expired, and whose deliveries are ready again.
    pub returned: u64,
    /// Deliveries that had been abandoned too often, and are dead.
    pub dead: u64,
}

/// What a promotion found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promoted {
    /// Deliveries that are ready now.
    pub ready: u64,
    /// How long until the next one is due; none when nothing is scheduled.
    pub next_due_in: Option<Duration>,
}

/// What kind of change is made to an endpoint, for the audit trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointChange {
    /// Its URL, event types or settings.
    Update,
    /// Its secret.
    RotateSecret,
    /// Nothing but the key under which its secrets are encrypted.
    Reseal,
}

impl EndpointChange {
    /// Its name in the audit trail.
    pub const fn action(self) -> &'static str {
        match self {
            Self::Update => "endpoint.update",
            Self::RotateSecret => "endpoint.rotate_secret",
            Self::Reseal => "endpoint.reseal",
        }
    }
}

/// A store that can be worked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The database's time.
    pub at: Timestamp,
    /// The connections of this process, where the store keeps a pool of them.
    pub connections: Option<Connections>,
}

/// A pool of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Open.
    pub open: u32,
    /// Open, and nobody uses them.
    pub idle: u32,
    /// How many there may be.
    pub most: u32,
}

/// One thing that was looked at in a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: `autovacuum`, `long_transactions`.
    pub check: &'static str,
    /// How it is.
    pub level: FindingLevel,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// Good.
    Ok,
    /// Works, but will hurt.
    Warning,
    /// Does not work.
    Problem,
}

/// Who acts, for the audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator(pub String);

/// What became of an operator's action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Done.
    Done,
    /// There is no such delivery.
    NotFound,
    /// Its state forbids it.
    Forbidden(Forbidden),
}

/// Why an action is forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forbidden {
    /// It has not been attempted yet, or is due already: there is nothing to retry.
    AlreadyDue,
    /// An attempt is under way.
    InFlight,
    /// A receiver has acknowledged it.
    AlreadyDelivered,
    /// It is settled: there is nothing to cancel.
    AlreadySettled(DeliveryStatus),
}

impl Forbidden {
    /// A stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::AlreadyDue => "delivery_already_due",
            Self::InFlight => "delivery_in_flight",
            Self::AlreadyDelivered => "delivery_already_delivered",
            Self::AlreadySettled(_) => "delivery_already_settled",
        }
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyDue => f.write_str("it was not attempted yet, or is due already: there is nothing to retry"),
            Self::InFlight => f.write_str("an attempt is under way"),
            Self::AlreadyDelivered => f.write_str("its receiver has acknowledged it"),
            Self::AlreadySettled(status) => write!(f, "it is {status} already"),
        }
    }
}

/// What is where.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Overview {
    /// Deliveries by status.
    pub pending: u64,
    /// Last attempt failed, another one is scheduled.
    pub failed: u64,
    /// Done.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Stopped.
    pub cancelled: u64,
    /// Ready to be claimed.
    pub due: u64,
    /// Leased.
    pub in_flight: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// How long the oldest ready delivery has been due.
    #[serde(serialize_with = "as_millis", rename = "oldest_due_age_ms")]
    pub oldest_due_age: Option<Duration>,
    /// What was announced in the last minute.
    pub last_minute: LastMinute,
}

/// How much has happened in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LastMinute {
    /// Attempts that ended a delivery well.
    pub delivered: u64,
    /// Attempts that failed and will be followed by another.
    pub failed: u64,
    /// Deliveries that died.
    pub dead: u64,
}

#[expect(clippy::ref_option, reason = "the shape that serde calls")]
fn as_millis<S: serde::Serializer>(age: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
}

/// A place in the record of announcements. What the gaps are is the store's business: numbers below `position` that a
/// transaction had taken, but not committed, when the place was reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedPlace {
    /// Everything up to here was seen, but for the gaps.
    pub position: i64,
    /// Positions that may yet appear, each with the store's mark from which on it no longer can.
    pub gaps: Vec<(i64, u64)>,
}

/// `12`, or with gaps `12.7-1001.9-1002`: for whoever resumes later.
impl fmt::Display for FeedPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.position)?;
        self.gaps.iter().try_for_each(|(position, mark)| write!(f, ".{position}-{mark}"))
    }
}

impl FromStr for FeedPlace {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        const MOST_BYTES: usize = 65_536;
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let gap = |text: &str| {
            let (position, mark) = text.split_once('-')?;
            Some((number(position)?, mark.parse::<u64>().ok()?))
        };
        let parse = || {
            let mut parts = text.split('.');
            let position = number(parts.next()?)?;
            Some(Self { position, gaps: parts.map(gap).collect::<Option<_>>()? })
        };
        (text.len() <= MOST_BYTES).then(parse).flatten().ok_or_else(|| {
            Refusal::new("last_event_id_invalid", "Last-Event-ID", "it is not one that this stream has sent")
        })
    }
}

/// Some announcements, and where to go on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Announced {
    /// In order of position, but for what was committed late.
    pub announcements: Vec<Announcement>,
    /// Where to go on.
    pub place: FeedPlace,
}

/// One thing that an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Its place in the trail, by time.
    pub id: uuid::Uuid,
    /// When.
    pub at: Timestamp,
    /// Whose thing it was done to; none for what belongs to all.
    pub tenant: Option<String>,
    /// Who.
    pub operator: String,
    /// What: `delivery.retry`, `delivery.cancel`, `endpoint.pause`.
    pub action: String,
    /// To which: the id's text, or the subject of a once-only claim.
    pub subject: String,
    /// Why, where a reason was given.
    pub reason: Option<String>,
}

/// What a retention step removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retained {
    /// Events.
    pub events: u64,
    /// Their deliveries.
    pub deliveries: u64,
    /// Deliveries of removed endpoints that were cancelled.
    pub cancelled: u64,
    /// Where to go on; none when everything old was looked at.
    pub next: Option<EventId>,
}

/// The store could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
pub struct StoreError {
    /// What kind of trouble.
    pub code: StoreErrorCode,
    /// For people. Never contains a payload or a secret.
    pub message: String,
    /// What the driver said.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of trouble that a store can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorCode {
    /// It cannot be reached, or is shutting down or starting.
    Unavailable,
    /// It is too busy: no connection or lock to be had in time.
    Busy,
    /// Somebody else's transaction, which has not ended yet, holds what this needs: an idempotency key, or a subject.
    Contended,
    /// Its disk is full.
    Full,
    /// A concurrent transaction won; the caller should repeat its own.
    Conflict,
    /// Its schema is older or newer than this program.
    Schema,
    /// Another process has what only one may have.
    Locked,
    /// There is no key to encrypt secrets with, or not the right one.
    SecretKey,
    /// Something that should not happen: a bug, a damaged file, somebody else's change to the schema.
    Internal,
}

impl StoreErrorCode {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "store_unavailable",
            Self::Busy => "store_busy",
            Self::Contended => "store_contended",
            Self::Full => "store_full",
            Self::Conflict => "store_conflict",
            Self::Schema => "store_schema",
            Self::Locked => "store_locked",
            Self::SecretKey => "store_secret_key",
            Self::Internal => "store_internal",
        }
    }

    /// Trying again can help.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::Busy | Self::Contended | Self::Full | Self::Conflict)
    }
}

impl fmt::Display for StoreErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl StoreError {
    /// Trouble of this kind.
    pub fn new(code: StoreErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), source: None }
    }

    /// The same, with what the driver said.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_text() {
        for place in [
            FeedPlace::default(),
            FeedPlace { position: 12, gaps: vec![] },
            FeedPlace { position: i64::MAX, gaps: vec![(7, 1001), (9, u64::MAX)] },
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for text in ["", "x", "-1", "1.", "1.2", "1.2-", "1.-3", "1 ", &"1.1-1".repeat(20_000)] {
            assert_eq!(text.parse::<FeedPlace>().unwrap_err().code, "last_event_id_invalid");
        }
    }
}
