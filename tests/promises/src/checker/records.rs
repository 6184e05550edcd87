//! Rules over what the database holds in the end.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{ATTEMPTS, COMMITTED, Case, DEATH, ENDS, LOST, Verdict};
use crate::load::{Fate, Way, number_of};

/// The ids of each number's events.
fn events_by_number(case: &Case<'_>) -> BTreeMap<Option<u64>, Vec<Uuid>> {
    let mut events: BTreeMap<Option<u64>, Vec<Uuid>> = BTreeMap::new();
    for event in &case.evidence.rows.events {
        events.entry(number_of(event.payload.as_bytes())).or_default().push(event.id);
    }
    events
}

pub(super) fn nothing_is_lost(case: &Case<'_>, verdict: &mut Verdict) {
    let events = events_by_number(case);
    let with_delivery: BTreeSet<Uuid> = case.evidence.rows.deliveries.iter().map(|row| row.event_id).collect();
    for (number, entry) in &case.evidence.ledger {
        match entry.fate {
            Fate::Acknowledged => verdict.figures.acknowledged += 1,
            Fate::RolledBack => verdict.figures.rolled_back += 1,
            Fate::Unknown => verdict.figures.unknown += 1,
        }
        if entry.fate != Fate::Acknowledged {
            continue;
        }
        match events.get(&Some(*number)).map(Vec::as_slice) {
            None => verdict.complain(LOST, format!("event {number} was acknowledged, and is nowhere")),
            Some([id]) if !with_delivery.contains(id) => {
                verdict.complain(LOST, format!("event {number} was acknowledged, and has no delivery"));
            }
            Some([_]) => {}
            Some(ids) => verdict.complain(LOST, format!("event {number} is there {} times", ids.len())),
        }
    }
}

pub(super) fn exists_iff_committed(case: &Case<'_>, verdict: &mut Verdict) {
    let events = events_by_number(case);
    let witnesses: BTreeSet<u64> = case.evidence.rows.witnesses.iter().copied().collect();
    let arrived: BTreeSet<u64> = case.evidence.requests.iter().filter_map(|request| request.number).collect();
    for number in events.keys() {
        if number.is_none_or(|number| !case.evidence.ledger.contains_key(&number)) {
            verdict.complain(COMMITTED, format!("event {number:?} is there, and nobody enqueued it"));
        }
    }
    for (number, entry) in &case.evidence.ledger {
        let exists = events.contains_key(&Some(*number));
        if entry.fate == Fate::RolledBack && (exists || arrived.contains(number)) {
            verdict.complain(COMMITTED, format!("event {number} was taken back, and is there or arrived"));
        }
        if entry.way == Way::Transaction && exists != witnesses.contains(number) {
            verdict.complain(COMMITTED, format!("event {number} and its transaction disagree: event {exists}"));
        }
    }
}

pub(super) fn one_row_per_attempt(case: &Case<'_>, verdict: &mut Verdict) {
    for delivery in &case.evidence.rows.deliveries {
        let attempts = case.attempts_of(delivery.id);
        let count = delivery.state.attempt_count + delivery.state.earlier_attempts;
        let mut numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
        numbers.sort_unstable();
        if !numbers.iter().copied().eq(1..=count) {
            let id = delivery.id;
            verdict.complain(ATTEMPTS, format!("{id} counts {count} attempts, and its rows are {numbers:?}"));
        }
        let tokens: BTreeSet<Uuid> = attempts.iter().map(|attempt| attempt.token).collect();
        if tokens.len() != attempts.len() {
            verdict.complain(ATTEMPTS, format!("{} has two attempts under one lease", delivery.id));
        }
    }
}

pub(super) fn deaths_are_announced_once(case: &Case<'_>, verdict: &mut Verdict) {
    let rows = &case.evidence.rows;
    let reasons: BTreeMap<Uuid, &str> = rows.dead.iter().map(|dead| (dead.delivery_id, &*dead.reason)).collect();
    let mut facts: BTreeMap<(Uuid, &str), u32> = BTreeMap::new();
    for announcement in &rows.announcements {
        *facts.entry((announcement.delivery_id, &*announcement.fact)).or_default() += 1;
    }
    let terms = &case.evidence.terms;
    for delivery in &rows.deliveries {
        let (id, state) = (delivery.id, &delivery.state);
        let told = |fact: &'static str| facts.get(&(id, fact)).copied().unwrap_or_default();
        let is_dead = state.status == "dead";
        let (dead, delivered) = (told("delivery.dead"), told("delivery.delivered"));
        if dead != u32::from(is_dead) || delivered != u32::from(state.status == "delivered") {
            let status = &state.status;
            verdict.complain(DEATH, format!("{id} is {status}: {dead} deaths and {delivered} arrivals announced"));
        }
        if is_dead != reasons.contains_key(&id) || (is_dead && state.next_attempt_at.is_some()) {
            verdict.complain(DEATH, format!("{id} is {}, and among the dead letters: {}", state.status, !is_dead));
        }
        match reasons.get(&id).copied() {
            Some("exhausted") if state.attempt_count != terms.max_attempts => {
                verdict.complain(DEATH, format!("{id} died of {} attempts", state.attempt_count));
            }
            Some("abandoned") if state.abandoned_count < terms.max_abandoned => {
                verdict.complain(DEATH, format!("{id} died abandoned {} times", state.abandoned_count));
            }
            Some("abandoned") => verdict.figures.quarantined += 1,
            _ => {}
        }
        if !is_dead && state.attempt_count >= terms.max_attempts && state.status != "delivered" {
            verdict.complain(DEATH, format!("{id} is {} after its last attempt", state.status));
        }
    }
}

pub(super) fn every_delivery_ends(case: &Case<'_>, verdict: &mut Verdict) {
    for delivery in &case.evidence.rows.deliveries {
        match delivery.state.status.as_str() {
            "delivered" => verdict.figures.delivered += 1,
            "dead" => verdict.figures.dead += 1,
            status => verdict.complain(ENDS, format!("{} is {status}", delivery.id)),
        }
    }
    for id in &case.evidence.rows.waiting {
        verdict.complain(ENDS, format!("{id} still waits in some place"));
    }
}
