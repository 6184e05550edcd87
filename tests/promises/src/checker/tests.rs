//! The checker itself on trial: honest evidence passes, and each rule complains when the evidence is falsified.

use std::collections::BTreeMap;

use postrider::EventId;

use super::*;
use crate::evidence::{AnnouncementRow, DeadRow, DeliveryRow, EventRow};
use crate::inbox::Answer;
use crate::load::{Fate, Way, payload};

const SECOND: i64 = 1_000_000;
/// When the story begins.
const START: i64 = 1_800_000_000 * SECOND;

fn id(number: u64, kind: u64) -> Uuid {
    Uuid::from_u64_pair(number, kind)
}

fn delivery(number: u64) -> Uuid {
    id(number, 1)
}

/// The token of a delivery's so-manieth claim.
fn token(number: u64, claim: u64) -> Uuid {
    id(number, 100 + claim)
}

fn pending() -> State {
    State {
        status: "pending".to_owned(),
        attempt_count: 0,
        earlier_attempts: 0,
        abandoned_count: 0,
        last_attempted_at: None,
        next_attempt_at: Some(START),
    }
}

/// Writes evidence as an honest trial would.
struct Scribe {
    evidence: Evidence,
    states: BTreeMap<u64, State>,
}

impl Scribe {
    fn new() -> Self {
        let terms = Terms {
            lease: Duration::from_secs(2),
            poll: Duration::from_secs(1),
            schedule: vec![Duration::from_secs(5)],
            max_attempts: 2,
            max_abandoned: 3,
            leeway: Duration::from_secs(1),
        };
        let (ledger, requests, rows) = (BTreeMap::new(), Vec::new(), Rows::default());
        let faults = vec![
            Fault { at: START, until: START, worker: Some("one".to_owned()), kind: Kind::Started },
            Fault { at: START, until: START, worker: Some("two".to_owned()), kind: Kind::Started },
        ];
        Self { evidence: Evidence { terms, ledger, requests, rows, faults }, states: BTreeMap::new() }
    }

    fn enqueued(&mut self, number: u64) {
        self.evidence.ledger.insert(number, Entry { way: Way::Transaction, fate: Fate::Acknowledged });
        self.evidence.rows.events.push(EventRow { id: id(number, 0), payload: payload(number) });
        self.evidence.rows.witnesses.push(number);
        self.states.insert(number, pending());
    }

    fn step(&mut self, number: u64, at: i64, deed: Deed) {
        self.evidence.rows.history.push(Step { delivery_id: delivery(number), at: START + at * SECOND, deed });
    }

    fn claimed(&mut self, number: u64, at: i64, claim: u64, owner: &str) {
        let until = START + (at + 2) * SECOND;
        let grant = Grant { token: token(number, claim), owner: owner.to_owned(), until };
        self.step(number, at, Deed::Claimed(grant));
    }

    fn sent(&mut self, number: u64, at: i64, status: u16) {
        let state = &self.states[&number];
        self.evidence.requests.push(Request {
            number: Some(number),
            event: EventId::from_uuid(id(number, 0)).to_string(),
            delivery: delivery(number),
            attempt: state.attempt_count + 1,
            signed_at: START / SECOND + at,
            arrived_at: START + at * SECOND + 1,
            signature_fault: None,
            answer: Answer::Status(status),
        });
    }

    fn changed(&mut self, number: u64, at: i64, change: impl FnOnce(&mut State)) {
        let before = self.states[&number].clone();
        let mut after = before.clone();
        change(&mut after);
        self.states.insert(number, after.clone());
        self.step(number, at, Deed::Changed { before, after });
    }

    fn ended(&mut self, number: u64, at: i64, claim: u64, owner: &str, until: i64) {
        let grant = Grant { token: token(number, claim), owner: owner.to_owned(), until: START + until * SECOND };
        self.step(number, at, Deed::Ended(grant));
    }

    fn settled(&mut self, number: u64, at: i64, claim: u64, owner: &str, status: &str, code: u16) {
        self.ended(number, at, claim, owner, at + 1);
        self.changed(number, at, |state| {
            status.clone_into(&mut state.status);
            state.attempt_count += 1;
            state.abandoned_count = 0;
            state.last_attempted_at = Some(START + at * SECOND);
            state.next_attempt_at = (status == "failed").then_some(START + (at + 5) * SECOND);
        });
        self.evidence.rows.attempts.push(AttemptRow {
            delivery_id: delivery(number),
            number: self.states[&number].attempt_count,
            token: token(number, claim),
            worker_id: owner.to_owned(),
            outcome: "response".to_owned(),
            status_code: Some(code),
        });
        let fact = format!("delivery.{status}");
        self.evidence.rows.announcements.push(AnnouncementRow { fact, delivery_id: delivery(number) });
        if status == "dead" {
            let reason = "exhausted".to_owned();
            self.evidence.rows.dead.push(DeadRow { delivery_id: delivery(number), reason });
        }
    }

    fn abandoned(&mut self, number: u64, at: i64, claim: u64, owner: &str, until: i64) {
        self.ended(number, at, claim, owner, until);
        self.changed(number, at, |state| state.abandoned_count += 1);
    }

    fn done(mut self) -> Evidence {
        for (number, state) in self.states {
            let row = DeliveryRow { id: delivery(number), event_id: id(number, 0), state };
            self.evidence.rows.deliveries.push(row);
        }
        self.evidence
    }
}

/// An honest trial: 1 arrives at the second attempt, 2 is taken over from `one`, which was killed, 3 dies, 4 is taken back.
fn honest() -> Evidence {
    let mut scribe = Scribe::new();
    for number in 1..=3 {
        scribe.enqueued(number);
    }
    scribe.evidence.ledger.insert(4, Entry { way: Way::Transaction, fate: Fate::RolledBack });
    scribe.claimed(1, 1, 1, "two");
    scribe.sent(1, 1, 500);
    scribe.settled(1, 2, 1, "two", "failed", 500);
    scribe.claimed(1, 7, 2, "two");
    scribe.sent(1, 7, 200);
    scribe.settled(1, 8, 2, "two", "delivered", 200);
    scribe.claimed(2, 1, 1, "one");
    scribe.sent(2, 1, 200);
    let killed =
        Fault { at: START + SECOND, until: START + SECOND, worker: Some("one".to_owned()), kind: Kind::Killed };
    scribe.evidence.faults.push(killed);
    scribe.abandoned(2, 4, 1, "one", 3);
    scribe.claimed(2, 4, 2, "two");
    scribe.sent(2, 4, 200);
    scribe.settled(2, 5, 2, "two", "delivered", 200);
    scribe.claimed(3, 1, 1, "two");
    scribe.sent(3, 1, 500);
    scribe.settled(3, 2, 1, "two", "failed", 500);
    scribe.claimed(3, 7, 2, "two");
    scribe.sent(3, 7, 500);
    scribe.settled(3, 8, 2, "two", "dead", 500);
    scribe.done()
}

/// Which rules complain, once the evidence was falsified like this.
fn complaints(falsify: impl FnOnce(&mut Evidence)) -> Vec<&'static str> {
    let mut evidence = honest();
    falsify(&mut evidence);
    let mut rules: Vec<&str> = judge(&evidence).complaints.iter().map(|complaint| complaint.rule).collect();
    rules.dedup();
    rules
}

#[track_caller]
fn is_found_by(rule: &'static str, falsify: impl FnOnce(&mut Evidence)) {
    let rules = complaints(falsify);
    assert!(rules.contains(&rule), "{rule:?} does not complain, only {rules:?}");
}

/// The change of a delivery by its so-manieth step.
fn changes(evidence: &mut Evidence, number: u64) -> impl Iterator<Item = (&mut State, &mut State)> {
    let of_delivery = evidence.rows.history.iter_mut().filter(move |step| step.delivery_id == delivery(number));
    of_delivery.filter_map(|step| match &mut step.deed {
        Deed::Changed { before, after } => Some((before, after)),
        _ => None,
    })
}

#[test]
fn an_honest_trial_passes_and_is_counted() {
    let verdict = judge(&honest());
    assert_eq!(verdict.complaints, []);
    let figures = verdict.figures;
    assert_eq!((figures.acknowledged, figures.rolled_back, figures.unknown), (3, 1, 0));
    assert_eq!((figures.delivered, figures.dead, figures.quarantined), (2, 1, 0));
    assert_eq!((figures.claims, figures.settled, figures.abandoned, figures.released), (6, 5, 1, 0));
    assert_eq!((figures.requests, figures.unsettled_requests), (6, 1));
    assert_eq!(figures.latest_recovery, Duration::from_secs(1));
    assert_eq!(figures.latest_takeover, Duration::from_secs(1));
}

#[test]
fn a_lost_event_is_found() {
    is_found_by(LOST, |evidence| evidence.rows.events.retain(|event| event.id != id(1, 0)));
}

#[test]
fn an_event_that_is_there_twice_is_found() {
    is_found_by(LOST, |evidence| evidence.rows.events.push(EventRow { id: id(9, 0), payload: payload(1) }));
}

#[test]
fn an_acknowledged_event_without_a_delivery_is_found() {
    is_found_by(LOST, |evidence| evidence.rows.deliveries.retain(|row| row.id != delivery(1)));
}

#[test]
fn an_event_of_a_transaction_that_was_rolled_back_is_found() {
    is_found_by(COMMITTED, |evidence| evidence.rows.events.push(EventRow { id: id(4, 0), payload: payload(4) }));
}

#[test]
fn a_commit_without_its_event_is_found_also_when_its_caller_never_learned_of_it() {
    is_found_by(COMMITTED, |evidence| {
        evidence.ledger.insert(5, Entry { way: Way::Transaction, fate: Fate::Unknown });
        evidence.rows.witnesses.push(5);
    });
}

#[test]
fn an_event_that_nobody_enqueued_is_found() {
    is_found_by(COMMITTED, |evidence| {
        evidence.rows.events.push(EventRow { id: id(77, 0), payload: "{}".to_owned() });
    });
}

#[test]
fn two_leases_at_a_time_are_found() {
    is_found_by(ONE, |evidence| {
        let grant = Grant { token: token(1, 9), owner: "one".to_owned(), until: START + 4 * SECOND };
        let step = Step { delivery_id: delivery(1), at: START + SECOND, deed: Deed::Claimed(grant) };
        evidence.rows.history.insert(1, step);
    });
}

#[test]
fn a_lease_that_was_taken_back_early_is_found() {
    is_found_by(EARLY, |evidence| {
        for step in &mut evidence.rows.history {
            if let Deed::Ended(grant) = &mut step.deed
                && grant.owner == "one"
            {
                grant.until = step.at + SECOND;
            }
        }
    });
}

#[test]
fn a_settle_under_the_lease_of_another_is_found() {
    is_found_by(HOLDER, |evidence| {
        let attempt = evidence.rows.attempts.iter_mut().find(|attempt| attempt.delivery_id == delivery(2)).unwrap();
        attempt.token = token(2, 1);
        "one".clone_into(&mut attempt.worker_id);
    });
}

#[test]
fn a_settle_without_a_lease_is_found() {
    is_found_by(HOLDER, |evidence| {
        let (before, mut after) = (pending(), pending());
        after.attempt_count = 1;
        let step = Step { delivery_id: delivery(1), at: START, deed: Deed::Changed { before, after } };
        evidence.rows.history.insert(0, step);
    });
}

#[test]
fn a_change_after_the_end_is_found() {
    is_found_by(FINAL, |evidence| {
        let mut before = pending();
        "delivered".clone_into(&mut before.status);
        let deed = Deed::Changed { before, after: pending() };
        evidence.rows.history.push(Step { delivery_id: delivery(1), at: START + 20 * SECOND, deed });
    });
}

#[test]
fn a_missing_and_a_superfluous_attempt_are_found() {
    is_found_by(ATTEMPTS, |evidence| {
        evidence.rows.attempts.remove(0);
    });
    is_found_by(ATTEMPTS, |evidence| {
        let again = AttemptRow { number: 3, ..evidence.rows.attempts[0].clone() };
        evidence.rows.attempts.push(again);
    });
}

#[test]
fn an_attempt_that_is_due_a_millisecond_off_is_found() {
    is_found_by(TIME, |evidence| {
        let (_, after) = changes(evidence, 1).next().unwrap();
        after.next_attempt_at = after.next_attempt_at.map(|at| at + 1_000);
    });
}

#[test]
fn a_claim_before_its_time_is_found() {
    is_found_by(TIME, |evidence| {
        let claims = evidence.rows.history.iter_mut().filter(|step| matches!(step.deed, Deed::Claimed(_)));
        claims.filter(|step| step.delivery_id == delivery(1)).last().unwrap().at = START + 3 * SECOND;
    });
}

#[test]
fn a_death_that_was_not_announced_or_announced_twice_is_found() {
    is_found_by(DEATH, |evidence| evidence.rows.announcements.retain(|row| row.fact != "delivery.dead"));
    is_found_by(DEATH, |evidence| {
        let fact = "delivery.dead".to_owned();
        evidence.rows.announcements.push(AnnouncementRow { fact, delivery_id: delivery(3) });
    });
}

#[test]
fn a_death_before_the_last_attempt_or_without_a_letter_is_found() {
    is_found_by(DEATH, |evidence| evidence.terms.max_attempts = 3);
    is_found_by(DEATH, |evidence| evidence.rows.dead.clear());
    is_found_by(DEATH, |evidence| "abandoned".clone_into(&mut evidence.rows.dead[0].reason));
}

#[test]
fn a_takeover_that_took_too_long_is_found() {
    is_found_by(TAKEOVER, |evidence| {
        for step in evidence.rows.history.iter_mut().filter(|step| step.delivery_id == delivery(2)).skip(1) {
            step.at += 4 * SECOND;
        }
    });
}

#[test]
fn time_without_anybody_there_does_not_count_against_a_takeover() {
    let rules = complaints(|evidence| {
        let late = START + 100 * SECOND;
        for step in evidence.rows.history.iter_mut().filter(|step| step.delivery_id == delivery(2)).skip(1) {
            step.at += 96 * SECOND;
        }
        for fault in &mut evidence.faults {
            if fault.worker.as_deref() == Some("two") {
                (fault.at, fault.until) = (late - SECOND, late - SECOND);
            }
        }
    });
    assert!(!rules.contains(&TAKEOVER), "{rules:?}");
}

#[test]
fn another_id_a_wrong_signature_an_old_one_and_other_bytes_are_found() {
    is_found_by(FRESH, |evidence| evidence.requests[1].event = evidence.requests[2].event.clone());
    is_found_by(FRESH, |evidence| evidence.requests[1].signature_fault = Some("signature invalid".to_owned()));
    is_found_by(FRESH, |evidence| evidence.requests[1].signed_at -= 6);
    is_found_by(FRESH, |evidence| evidence.requests[1].signed_at += 6);
    is_found_by(FRESH, |evidence| evidence.requests[1].number = None);
    is_found_by(FRESH, |evidence| evidence.requests[1].delivery = id(99, 1));
}

#[test]
fn a_delivery_that_does_not_end_is_found() {
    is_found_by(ENDS, |evidence| "failed".clone_into(&mut evidence.rows.deliveries[0].state.status));
    is_found_by(ENDS, |evidence| evidence.rows.waiting.push(delivery(1)));
}

#[test]
fn an_arrival_that_the_receiver_knows_nothing_of_is_found() {
    is_found_by(ANSWERED, |evidence| evidence.requests[1].answer = Answer::Status(500));
    is_found_by(ANSWERED, |evidence| evidence.requests[0].answer = Answer::Dropped);
}

#[test]
fn a_request_without_a_claim_is_found() {
    is_found_by(EXPLAINED, |evidence| {
        let again = evidence.requests[0].clone();
        evidence.requests.push(again);
    });
}

#[test]
fn a_lost_lease_that_no_fault_explains_is_found() {
    is_found_by(EXPLAINED, |evidence| evidence.faults.retain(|fault| fault.kind != Kind::Killed));
    is_found_by(EXPLAINED, |evidence| evidence.faults.last_mut().unwrap().kind = Kind::Terminated);
    is_found_by(EXPLAINED, |evidence| evidence.faults.last_mut().unwrap().worker = Some("two".to_owned()));
}

/// A rule without a test above would be one that never complains.
#[test]
fn every_rule_has_complained() {
    let tests = include_str!("tests.rs");
    let names = include_str!("mod.rs");
    for rule in RULES {
        let name = names.lines().find(|line| line.contains(&format!("\"{rule}\""))).unwrap();
        let name = name.trim_start_matches("const ").split(':').next().unwrap();
        assert!(tests.contains(&format!("is_found_by({name}, ")), "{name}");
    }
}
