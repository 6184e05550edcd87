//! The lease protocol as a model, and every state that it can come into.
//!
//! Two workers, a database, and everything that can go wrong between them, in every order. What the database does is in
//! [`database`], one function per statement; what workers do and believe is here.
//!
//! | action | stands for |
//! |---|---|
//! | `Claim` | `claim.sql`; `HeldLeases::add` |
//! | `Renew`, `RenewUnheard` | `renew.sql`, by the heartbeat; its answer arrives, or is lost |
//! | `Doubt` | `HeldLeases::is_safe` turns false: the worker's own clock says that the lease may have run out |
//! | `Send` | the POST; only under a lease that is certainly still held |
//! | `Settle`, `SettleUnheard` | `settle.sql` and `settle_earlier.sql`; the answer arrives, or is lost and the settle is repeated |
//! | `Release` | `release.sql`: on shutdown, or when there is doubt before the attempt begins |
//! | `Crash` | kill -9. Whoever starts again in its place has another name |
//! | `Expire` | the database's clock passes `lease_until` |
//! | `Recover`, `Promote` | `recover.sql`, `promote.sql`, by whichever worker is there |
//! | `Cancel` | `cancel.sql`, by an operator |
//! | `FallBehind`, `Failover` | a standby stops receiving the log, and later becomes the database: what was committed in between never happened, except in the memory of the workers |
//!
//! **A pause has no action of its own.** Between two steps of a worker anything may happen, also the expiry of its lease
//! and a takeover; then it goes on with what it believed. So every worker here is one that may be stopped at any point
//! for any time, or be cut off from its database; [`properties::OVERTAKEN`] asks that such runs are among those that were
//! looked at.
//!
//! **Time has no number.** A lease runs out at some moment after it was granted or renewed. What a worker believes ends
//! no later than what the database granted with the same answer, since it counts from before it asked; that is all that
//! is assumed of clocks. After a failover even that is not so for leases whose renewal was lost.
//!
//! The search is exhaustive and ends, because everything that could go on for ever is bounded: attempts and lost leases
//! by the protocol itself, the rest by [`Bounds`]. So "every delivery ends" is checked as well, in its strong form: where
//! nothing more can happen, everything has ended.

pub(crate) mod database;
pub(crate) mod properties;

use database::{Database, Key, Settlement};
use stateright::{Model, Property};

/// By what renewing, settling and releasing recognise a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Owner and random token: the protocol as it is.
    Token,
    /// The owner's name alone.
    Owner,
    /// The owner's name, and a number that the database counts up.
    OwnerAndNumber,
}

/// The rules. [`Protocol::default`] are those of the engine; the others are there to be shown wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) guard: Guard,
    /// The statement that writes the result deletes the lease.
    pub(crate) settling_consumes: bool,
    /// A worker counts its lease from before it asked for it, and sends nothing when it may have run out.
    pub(crate) doubts: bool,
    pub(crate) max_attempts: u8,
    pub(crate) max_abandoned: u8,
}

impl Default for Protocol {
    fn default() -> Self {
        Self { guard: Guard::Token, settling_consumes: true, doubts: true, max_attempts: 2, max_abandoned: 2 }
    }
}

/// How much may happen in one run, besides what the protocol itself bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Bounds {
    pub(crate) crashes: u8,
    pub(crate) renewals: u8,
    pub(crate) releases: u8,
    pub(crate) cancels: u8,
    pub(crate) failovers: u8,
}

/// The model: rules, bounds, and how many deliveries there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseModel {
    pub(crate) protocol: Protocol,
    pub(crate) bounds: Bounds,
    pub(crate) deliveries: usize,
}

/// A worker, and which of its starts. The name is new at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    pub(crate) worker: usize,
    pub(crate) start: u8,
}

/// Which claim of all that anybody or anything still knows of, also of those that a failover has undone.
pub(crate) type Claim = u8;

/// No other claim has this name; it gets a shorter one at the end of the step.
const NEW_CLAIM: Claim = Claim::MAX;

const WORKERS: usize = 2;
/// How many flights a worker has room for: one that was held up, and one that was claimed since.
const SLOTS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) database: Database,
    /// What a failover would go back to, once the standby has fallen behind.
    pub(crate) standby: Option<Database>,
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) left: Bounds,
    pub(crate) failed_over: bool,
    pub(crate) seen: Seen,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    start: u8,
    pub(crate) flights: Vec<Flight>,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) delivery: usize,
    key: Key,
    /// The `attempt_count` that came with the claim.
    attempt_count: u8,
    /// The renewal by which the lease certainly still lasts.
    pub(crate) safe: Option<u8>,
    result: Option<Verdict>,
}

/// What follows from the outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Delivered,
    Retry,
    Dead,
}

/// What the last step showed that no state shows by itself. The first three must never happen, the others should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(crate) struct Seen {
    /// A claim changed the lease of another claim.
    pub(crate) stale_change: bool,
    /// A worker was told that its result is on record, and another's is.
    pub(crate) false_answer: bool,
    /// A settled delivery moved, by something else than a failover.
    pub(crate) unsettled: bool,
    /// A settle came after a takeover, while the other's attempt was under way, and was refused.
    pub(crate) stale_refused: bool,
    /// A settle was repeated, and recognised.
    pub(crate) repeat_recognised: bool,
    /// A failover undid a settle.
    pub(crate) settle_undone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Claim { worker: usize, delivery: usize },
    Renew { worker: usize, flight: usize },
    RenewUnheard { worker: usize, flight: usize },
    Doubt { worker: usize, flight: usize },
    Send { worker: usize, flight: usize, succeeds: bool },
    Settle { worker: usize, flight: usize },
    SettleUnheard { worker: usize, flight: usize },
    Release { worker: usize, flight: usize },
    Crash { worker: usize },
    Expire { delivery: usize },
    Recover { delivery: usize },
    Promote { delivery: usize },
    Cancel { delivery: usize },
    FallBehind,
    Failover,
}

impl Model for LeaseModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (worker, Worker { flights, .. }) in state.workers.iter().enumerate() {
            for (flight, Flight { safe, result, .. }) in flights.iter().enumerate() {
                if result.is_some() {
                    actions.extend([Action::Settle { worker, flight }, Action::SettleUnheard { worker, flight }]);
                } else if safe.is_some() {
                    actions.extend([true, false].map(|succeeds| Action::Send { worker, flight, succeeds }));
                    actions.push(Action::Doubt { worker, flight });
                    if state.left.renewals > 0 {
                        actions.extend([Action::Renew { worker, flight }, Action::RenewUnheard { worker, flight }]);
                    }
                }
                if safe.is_none() && result.is_none() || state.left.releases > 0 {
                    actions.push(Action::Release { worker, flight });
                }
            }
            // The workers are alike, so it may as well be the first that begins.
            if flights.len() < SLOTS && (worker == 0 || *state != self.first_state()) {
                actions.extend((0..self.deliveries).map(|delivery| Action::Claim { worker, delivery }));
            }
            if state.left.crashes > 0 && !flights.is_empty() {
                actions.push(Action::Crash { worker });
            }
        }
        // Whether there is anything to do is for the statement to find out.
        for delivery in 0..self.deliveries {
            let tended = [Action::Expire { delivery }, Action::Recover { delivery }, Action::Promote { delivery }];
            actions.extend(tended);
            if state.left.cancels > 0 {
                actions.push(Action::Cancel { delivery });
            }
        }
        if let Some(standby) = &state.standby {
            actions.extend((*standby != state.database).then_some(Action::Failover));
        } else if state.left.failovers > 0 {
            actions.push(Action::FallBehind);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = State { seen: Seen::default(), ..before.clone() };
        self.apply(&mut state, action)?;
        state.rename_claims();
        let mut pairs = before.database.deliveries.iter().zip(&state.database.deliveries);
        state.seen.unsettled =
            action != Action::Failover && pairs.any(|(was, is)| was.is_settled() && was.place != is.place);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl State {
    /// Claims are told apart by what equals what, and their names mean nothing. Where the names are given in the order of
    /// appearance, states that differ in names only are the same state, and there are far fewer of them.
    fn rename_claims(&mut self) {
        let Self { database, standby, workers, .. } = self;
        let mut known: Vec<Claim> = Vec::new();
        let mut rename = |key: &mut Key| {
            let place = known.iter().position(|claim| *claim == key.claim).unwrap_or_else(|| {
                known.push(key.claim);
                known.len() - 1
            });
            key.claim = Claim::try_from(place).expect("there are few claims");
        };
        workers.iter_mut().flat_map(|worker| &mut worker.flights).for_each(|flight| rename(&mut flight.key));
        for database in std::iter::once(database).chain(standby) {
            database.keys_mut().for_each(&mut rename);
        }
    }
}

impl LeaseModel {
    fn first_state(&self) -> State {
        let database = Database::new(self.deliveries);
        let (workers, seen) = Default::default();
        State { database, standby: None, workers, left: self.bounds, failed_over: false, seen }
    }

    /// Whether nothing more can happen.
    pub(crate) fn is_at_its_end(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.iter().all(|action| self.next_state(state, *action).as_ref().is_none_or(|next| next == state))
    }

    fn apply(&self, state: &mut State, action: Action) -> Option<()> {
        let protocol = self.protocol;
        match action {
            Action::Claim { worker, delivery } => {
                let Worker { start, flights } = &mut state.workers[worker];
                let owner = Owner { worker, start: *start };
                let key = state.database.claim(protocol, delivery, owner, NEW_CLAIM)?;
                let attempt_count = state.database.deliveries[delivery].attempt_count;
                flights.push(Flight { delivery, key, attempt_count, safe: Some(0), result: None });
            }
            Action::Renew { worker, flight } | Action::RenewUnheard { worker, flight } => {
                let flight = &mut state.workers[worker].flights[flight];
                state.left.renewals -= 1;
                let renewed = state.database.renew(protocol, flight.delivery, flight.key);
                state.seen.stale_change = renewed.is_some_and(|lease| lease.key.claim != flight.key.claim);
                if matches!(action, Action::Renew { .. }) {
                    flight.safe = renewed.map(|lease| lease.term);
                }
            }
            Action::Doubt { worker, flight } => state.workers[worker].flights[flight].safe = None,
            Action::Send { worker, flight, succeeds } => {
                let flight = &mut state.workers[worker].flights[flight];
                // Renewals go on until the settle, but nobody asks any more whether it is safe to send.
                flight.safe = None;
                flight.result = Some(match succeeds {
                    true => Verdict::Delivered,
                    false if flight.attempt_count + 1 >= protocol.max_attempts => Verdict::Dead,
                    false => Verdict::Retry,
                });
            }
            Action::Settle { worker, flight } => {
                self.settle(state, worker, flight)?;
                state.workers[worker].flights.remove(flight);
            }
            Action::SettleUnheard { worker, flight } => self.settle(state, worker, flight)?,
            Action::Release { worker, flight } => {
                let flight = state.workers[worker].flights.remove(flight);
                // A release that fails is not repeated: the lease is left to expire.
                if state.left.releases > 0 {
                    state.left.releases -= 1;
                    let released = state.database.release(protocol, flight.delivery, flight.key);
                    state.seen.stale_change = released.is_some_and(|key| key.claim != flight.key.claim);
                }
            }
            Action::Crash { worker } => {
                state.left.crashes -= 1;
                let Worker { start, flights } = &mut state.workers[worker];
                *start += 1;
                flights.clear();
            }
            Action::Expire { delivery } => {
                let lease = state.database.expire(delivery)?;
                if protocol.doubts {
                    let flights = state.workers.iter_mut().flat_map(|worker| &mut worker.flights);
                    let holders = flights.filter(|flight| flight.key == lease.key);
                    holders.for_each(|flight| flight.safe = flight.safe.filter(|term| *term > lease.term));
                }
            }
            Action::Recover { delivery } => state.database.recover(protocol, delivery)?,
            Action::Promote { delivery } => state.database.promote(delivery)?,
            Action::Cancel { delivery } => {
                state.left.cancels -= 1;
                state.database.cancel(delivery)?;
            }
            Action::FallBehind => {
                state.left.failovers -= 1;
                state.standby = Some(state.database.clone());
            }
            Action::Failover => {
                let standby = state.standby.take()?;
                let lost = std::mem::replace(&mut state.database, standby);
                let mut pairs = lost.deliveries.iter().zip(&state.database.deliveries);
                state.seen.settle_undone = pairs.any(|(was, is)| was.is_settled() && !is.is_settled());
                state.failed_over = true;
            }
        }
        Some(())
    }

    fn settle(&self, state: &mut State, worker: usize, flight: usize) -> Option<()> {
        let flight = state.workers[worker].flights[flight];
        let settlement = state.database.settle(self.protocol, flight.delivery, flight.key, flight.result?);
        let is_mine = |key: Key| key.claim == flight.key.claim;
        match settlement {
            Settlement::Applied(key) => state.seen.stale_change = !is_mine(key),
            Settlement::AppliedEarlier(key) if is_mine(key) => state.seen.repeat_recognised = true,
            Settlement::AppliedEarlier(_) => state.seen.false_answer = true,
            Settlement::LeaseLost => {
                state.seen.stale_refused = state.database.deliveries[flight.delivery].lease().is_some();
            }
        }
        Some(())
    }
}
