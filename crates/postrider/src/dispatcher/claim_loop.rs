//! The claim loop: asks for as much as there is room for, and hands each delivery it gets to the crew.
//!
//! It rests when a claim came to every lane and did not bring all that was asked for, and wakes up when something may have become
//! ready (in this process or another), when there is room again in a lane that may have more, when an endpoint whose rate
//! limit was reached may be called again, or at the next poll.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::crew::Crew;
use super::flight::Flight;
use super::held::Granted;
use super::lanes::Asked;
use super::summary::{self, Periods};
use super::{Backoff, Shared, care, release, request, suspects};
use crate::lease::Lease;
use crate::store::{Claim, ClaimRequest, Claimed, Lane, StoreError};

/// How many deliveries one claim takes at most: enough to spread the cost of the statement, little enough to be quick.
const MAX_CLAIM: u32 = 256;

/// How long a claim waits for more room, where the one before it left something behind. Slots come free one by one, and
/// a statement for each would cost more than the deliveries do.
const GATHER: Duration = Duration::from_millis(5);

/// How far a claim is apart from the one before it at least, where that took what there was. Where much is enqueued by and by,
/// a claim for each would cost more than the deliveries do.
const APART: Duration = Duration::from_millis(2);

/// How long it rests at least for an endpoint's rate limit. A fast one has a token again after microseconds, and a
/// bucket that holds many more by the time of the next claim.
const SHORTEST_TOKEN_WAIT: Duration = Duration::from_millis(5);

/// When a claim was made: by this machine's clock before and after it, and by the database's.
#[derive(Debug, Clone, Copy)]
struct Times {
    asked_at: Instant,
    answered_at: Instant,
    at: Timestamp,
}

/// The lanes that a claim came to: those after the one, up to the other.
struct Visited {
    after: Option<Lane>,
    last: Option<Lane>,
}

impl Visited {
    fn includes(&self, lane: &Lane) -> bool {
        let is_after = self.after.as_ref().is_none_or(|after| lane > after);
        let is_before = self.last.as_ref().is_none_or(|last| lane <= last);
        let has_wrapped = matches!((&self.after, &self.last), (Some(after), Some(last)) if last <= after);
        if has_wrapped { is_after || is_before } else { is_after && is_before }
    }
}

/// Claims and launches, until it is told to stop.
pub(super) struct ClaimLoop {
    shared: Arc<Shared>,
    crew: Crew<Flight>,
    stopping: watch::Receiver<bool>,
    cursor: Option<Lane>,
    /// The last claim brought as much as it was asked for, or as the store brings at once.
    more_waits: bool,
    /// The last claim left something behind in lanes that may have something in line.
    lanes_are_short: bool,
    /// When the last claim that took something was asked for.
    took_at: Option<Instant>,
    /// Room for how many is worth a claim at once.
    enough: u32,
    /// How often claims have passed the end of the lanes since one found something.
    empty_passes: u32,
    /// When the first of the endpoints whose rate limit was reached, as far as this round has seen them, has a token again.
    next_token_at: Option<Instant>,
    backoff: Backoff,
    periods: Periods,
}

impl ClaimLoop {
    pub(super) fn new(shared: Arc<Shared>, crew: Crew<Flight>, stopping: watch::Receiver<bool>) -> Self {
        let enough = (shared.settings.max_in_flight / 2).clamp(1, MAX_CLAIM);
        Self {
            shared,
            crew,
            stopping,
            cursor: None,
            more_waits: false,
            lanes_are_short: false,
            took_at: None,
            enough,
            empty_passes: 0,
            next_token_at: None,
            backoff: Backoff::new(),
            periods: Periods::new(),
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits for something, but not beyond being told to stop.
    async fn unless_stopping(&self, something: impl Future<Output = ()>) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = something => {}
            // A sender that is gone means the same.
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }

    pub(super) async fn run(&mut self, flights: &mut JoinSet<()>) {
        while !self.is_stopping() {
            while flights.try_join_next().is_some() {}
            if self.more_waits {
                self.unless_stopping(async {
                    let _ = timeout(GATHER, self.shared.held.room_for(self.enough)).await;
                })
                .await;
            }
            let asked_at = Instant::now();
            let asked = self.shared.held.ask(asked_at);
            if asked.room == 0 {
                self.tell_period(false);
                self.unless_stopping(self.shared.held.freed()).await;
                continue;
            }
            let limit = asked.room.min(MAX_CLAIM);
            match self.claim(limit, &asked).await {
                Ok(claimed) if self.is_stopping() => {
                    self.shared.count(|totals| totals.claimed += claimed.claims.len() as u64);
                    let leases: Vec<Lease> = claimed.claims.iter().map(|claim| claim.lease).collect();
                    release(&self.shared, &leases).await;
                }
                Ok(mut claimed) => {
                    let times = Times { asked_at, answered_at: Instant::now(), at: claimed.at };
                    self.backoff.reset();
                    let full = claimed.claims.len() >= limit as usize;
                    if !claimed.claims.is_empty() {
                        self.took_at = Some(asked_at);
                    }
                    self.expect_token(claimed.next_token_in);
                    let saw_every_lane = self.saw_every_lane(&claimed);
                    self.more_waits = full || !saw_every_lane && !claimed.claims.is_empty();
                    let visited = Visited { after: self.cursor.take(), last: claimed.cursor.clone() };
                    self.cursor.clone_from(&claimed.cursor);
                    let suspect = suspects::set_apart(&self.shared, &mut claimed.claims).await;
                    self.launch(claimed.claims, times, &asked, &visited, flights);
                    if let Some(suspect) = suspect {
                        self.launch_alone(suspect, times, flights).await;
                    } else if saw_every_lane && !full {
                        self.rest().await;
                    }
                }
                Err(error) => {
                    self.shared.store_failed("claim", &error);
                    let wait = self.backoff.next();
                    self.unless_stopping(tokio::time::sleep(wait)).await;
                }
            }
        }
    }

    /// Whether this claim, or those before it together with it, came to every lane.
    ///
    /// A claim that began in the middle says nothing about the lanes before it. But where many lanes have nothing to give,
    /// because their endpoints are paused or their slots are taken, no single claim gets through them. Then it takes
    /// two passes of the end without anything found: all lanes lie between them.
    fn saw_every_lane(&mut self, claimed: &Claimed) -> bool {
        if self.cursor.is_none() && claimed.cursor.is_none() {
            self.empty_passes = 0;
            return true;
        }
        let passed_the_end = match (&self.cursor, &claimed.cursor) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(before), Some(after)) => after <= before,
        };
        if !claimed.claims.is_empty() {
            self.empty_passes = 0;
        } else if passed_the_end {
            self.empty_passes += 1;
        }
        if self.empty_passes < 2 {
            return false;
        }
        self.empty_passes = 0;
        true
    }

    fn expect_token(&mut self, within: Option<Duration>) {
        let at = within.map(|wait| Instant::now() + wait.max(SHORTEST_TOKEN_WAIT));
        self.next_token_at = [self.next_token_at, at].into_iter().flatten().min();
    }

    async fn claim(&self, limit: u32, asked: &Asked) -> Result<Claimed, StoreError> {
        let settings = &self.shared.settings;
        let Asked { mut in_flight, mut ahead, closed, .. } = asked.clone();
        // A lane without a free slot is passed over.
        for lane in self.shared.left_alone.lanes(Instant::now()).into_iter().chain(closed) {
            in_flight.retain(|(other, _)| *other != lane);
            ahead.retain(|(other, _)| *other != lane);
            in_flight.push((lane, settings.max_in_flight_per_destination));
        }
        let request = ClaimRequest {
            worker: settings.worker.clone(),
            lease: settings.term.lease(),
            limit,
            lane_limit: settings.max_in_flight_per_destination,
            in_flight,
            ahead,
            after: self.cursor.clone(),
        };
        self.shared.store.claim(&request).await
    }

    /// Registers the leases of a whole batch, then starts its attempts.
    fn launch(
        &mut self,
        claims: Vec<Claim>,
        times: Times,
        asked: &Asked,
        visited: &Visited,
        flights: &mut JoinSet<()>,
    ) {
        #[cfg(feature = "failpoints")]
        if !claims.is_empty() {
            crate::failpoint::reached(crate::failpoint::AFTER_CLAIM);
        }
        self.shared.count(|totals| totals.claimed += claims.len() as u64);
        let granted = claims.iter().map(|claim| self.grant(claim, times.asked_at));
        let shortage = self.shared.held.add(granted, asked, |lane| visited.includes(lane));
        self.lanes_are_short = shortage.is_lasting;
        let (troubled, claims): (Vec<_>, Vec<_>) = claims.into_iter().partition(care::is_troubled);
        if !troubled.is_empty() {
            flights.spawn(care::set_aside(Arc::clone(&self.shared), troubled));
        }
        let flights_of_claims = claims.into_iter().map(|claim| self.flight(claim, times));
        self.crew.call(flights_of_claims, self.more_waits, times.answered_at, flights);
    }

    /// Starts the attempt of a suspect while nothing else is under way, and claims nothing for a moment. If the others take
    /// too long, or the dispatcher is to stop, it is given back instead.
    async fn launch_alone(&self, suspect: Claim, times: Times, flights: &mut JoinSet<()>) {
        let (shared, lease) = (&self.shared, suspect.lease);
        let patience = request::timeout(&suspect, &shared.settings) + shared.settings.term.lease();
        shared.count(|totals| totals.claimed += 1);
        let granted = self.grant(&suspect, times.asked_at);
        let granted = Granted { hard_deadline: granted.hard_deadline + patience, ..granted };
        shared.held.add([granted], &Asked::default(), |_| false);
        self.unless_stopping(async {
            let _ = timeout(patience, shared.held.alone()).await;
        })
        .await;
        if self.is_stopping() || shared.held.len() > 1 {
            release(shared, &[lease]).await;
            shared.held.remove([lease.token]);
            return;
        }
        suspects::tell(shared, &suspect);
        self.crew.call(std::iter::once(self.flight(suspect, times)), false, Instant::now(), flights);
        self.unless_stopping(async {
            let _ = timeout(suspects::HEAD_START, shared.held.emptied()).await;
        })
        .await;
    }

    fn flight(&self, claim: Claim, times: Times) -> Flight {
        Flight::new(Arc::clone(&self.shared), claim, times.at, times.answered_at)
    }

    fn grant(&self, claim: &Claim, asked_at: Instant) -> Granted {
        let settings = &self.shared.settings;
        let own = claim.endpoint.as_ref().map(|endpoint| &endpoint.settings);
        let own_limit = own.and_then(|settings| settings.max_in_flight);
        let lane_limit = own_limit.map_or(u32::MAX, u32::from).min(settings.max_in_flight_per_destination);
        Granted {
            lease: claim.lease,
            lane: claim.lane.clone(),
            lane_limit,
            lane_may_wait: own_limit.is_none() && own.is_none_or(|settings| settings.rate_limit.is_none()),
            lane_shared: own_limit.is_some(),
            asked_at,
            safe_until: asked_at + settings.term.lease(),
            hard_deadline: request::hard_deadline(claim, settings, asked_at),
        }
    }

    /// Waits until there may be something to claim.
    async fn rest(&mut self) {
        self.tell_period(self.shared.held.len() == 0);
        let poll_interval = self.shared.settings.poll_interval;
        let next_token_at = self.next_token_at.take();
        let next_token = async {
            match next_token_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let apart = if self.lanes_are_short { GATHER } else { APART };
        let apart = self.took_at.map(|at| at + apart);
        self.unless_stopping(async {
            tokio::select! {
                () = next_token => {}
                () = self.shared.store.wait_ready(poll_interval) => {}
                () = self.shared.ready.notified() => {}
                () = self.shared.held.freed() => {}
            }
            if let Some(at) = apart {
                tokio::time::sleep_until(at.into()).await;
            }
        })
        .await;
    }

    fn tell_period(&mut self, idle: bool) {
        let mut told = None;
        self.shared.count(|totals| told = self.periods.observe(totals, idle, Instant::now()));
        if let Some((period, length)) = told {
            summary::tell("dispatched", &period, Some(length));
        }
    }
}
