//! What must hold in every state, and what should be among the states that were looked at.

use std::collections::BTreeSet;

use stateright::Property;

use super::database::{Delivery, End, Place};
use super::{LeaseModel, State};

pub(crate) const STALE: &str = "P4: a stale claim changes nothing";
pub(crate) const ONE_LEASE: &str = "P3: at most one worker may send a delivery";
pub(crate) const ONCE: &str = "P5: a claim is settled at most once";
pub(crate) const TRUE_ANSWER: &str = "P5: who is told that its result is on record has it on record";
pub(crate) const FINAL: &str = "P6: what is settled stays so";
pub(crate) const COUNTED: &str = "P7: there is one attempt on record for each that was counted";
pub(crate) const LAST: &str = "P9: what died of its attempts had all of them";
pub(crate) const ENDS: &str = "where nothing more can happen, every delivery has ended";
pub(crate) const EVENTUALLY: &str = "every delivery ends, whichever way things go";

pub(crate) const OVERTAKEN: &str = "a worker that was held up beyond its lease was refused";
pub(crate) const REPEATED: &str = "a settle whose answer was lost was recognised";
pub(crate) const UNDONE: &str = "a failover undid a settle";
pub(crate) const QUARANTINED: &str = "a delivery died of lost leases";
pub(crate) const SENT_TWICE_AT_ONCE: &str = "after a failover two workers may send the same delivery";

/// What must always hold.
pub(crate) const PROMISES: [&str; 9] = [STALE, ONE_LEASE, ONCE, TRUE_ANSWER, FINAL, COUNTED, LAST, ENDS, EVENTUALLY];

pub(crate) fn all() -> Vec<Property<LeaseModel>> {
    vec![
        Property::always(STALE, |_, state: &State| !state.seen.stale_change),
        Property::always(ONE_LEASE, |_, state: &State| state.failed_over || may_be_sent_at_once(state) <= 1),
        Property::always(ONCE, |_, state: &State| state.database.deliveries.iter().all(has_one_attempt_per_claim)),
        Property::always(TRUE_ANSWER, |_, state: &State| !state.seen.false_answer),
        Property::always(FINAL, |_, state: &State| !state.seen.unsettled),
        Property::always(COUNTED, |_, state: &State| {
            state.database.deliveries.iter().all(|row| row.attempts.len() == usize::from(row.attempt_count))
        }),
        Property::always(LAST, |model: &LeaseModel, state: &State| {
            let exhausted = |row: &&Delivery| row.place == Place::Settled(End::Exhausted);
            let mut dead = state.database.deliveries.iter().filter(exhausted);
            dead.all(|row| row.attempt_count == model.protocol.max_attempts)
        }),
        Property::always(ENDS, |model: &LeaseModel, state: &State| all_ended(state) || !model.is_at_its_end(state)),
        Property::eventually(EVENTUALLY, |_, state: &State| all_ended(state)),
        Property::sometimes(OVERTAKEN, |_, state: &State| state.seen.stale_refused && !state.failed_over),
        Property::sometimes(REPEATED, |_, state: &State| state.seen.repeat_recognised),
        Property::sometimes(UNDONE, |_, state: &State| state.seen.settle_undone),
        Property::sometimes(QUARANTINED, |_, state: &State| {
            state.database.deliveries.iter().any(|row| row.place == Place::Settled(End::Abandoned))
        }),
        Property::sometimes(SENT_TWICE_AT_ONCE, |_, state: &State| may_be_sent_at_once(state) > 1),
    ]
}

fn all_ended(state: &State) -> bool {
    state.database.deliveries.iter().all(Delivery::is_settled)
}

/// How many flights of one delivery are about to be sent under a lease that their worker takes for certain, at most.
fn may_be_sent_at_once(state: &State) -> usize {
    let safe = |delivery| {
        let flights = state.workers.iter().flat_map(|worker| &worker.flights);
        flights.filter(|flight| flight.delivery == delivery && flight.safe.is_some()).count()
    };
    (0..state.database.deliveries.len()).map(safe).max().unwrap_or(0)
}

fn has_one_attempt_per_claim(row: &Delivery) -> bool {
    let claims: BTreeSet<_> = row.attempts.iter().map(|attempt| attempt.claim).collect();
    claims.len() == row.attempts.len()
}
