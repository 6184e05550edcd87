//! Rules over what arrived.

use std::collections::BTreeSet;

use postrider::EventId;

use super::{ANSWERED, Case, EXPLAINED, End, FRESH, Kind, Verdict};

pub(super) fn ids_and_signatures(case: &Case<'_>, verdict: &mut Verdict) {
    let evidence = case.evidence;
    let frozen = evidence.faults.iter().filter(|fault| fault.kind == Kind::Frozen);
    let longest_freeze = frozen.map(|fault| fault.until - fault.at).max().unwrap_or_default();
    let leeway = i64::try_from(evidence.terms.leeway.as_micros()).unwrap_or(i64::MAX);
    for delivery in &evidence.rows.deliveries {
        let event = EventId::from_uuid(delivery.event_id).to_string();
        for request in case.requests_of(delivery.id) {
            let (id, attempt) = (delivery.id, request.attempt);
            if request.event != event {
                verdict.complain(FRESH, format!("{id}: attempt {attempt} came as {}", request.event));
            }
            if let Some(fault) = &request.signature_fault {
                verdict.complain(FRESH, format!("{id}: the signature of attempt {attempt} is wrong: {fault}"));
            }
            // A dispatcher may have been frozen between signing and sending. A second is what the header rounds off.
            let age = request.arrived_at - request.signed_at * 1_000_000;
            if age < -1_000_000 || age > 1_000_000 + longest_freeze + leeway {
                verdict.complain(FRESH, format!("{id}: attempt {attempt} was signed {age} microseconds before"));
            }
            if request.number.is_none() {
                verdict.complain(FRESH, format!("{id}: attempt {attempt} brought other bytes than were enqueued"));
            }
        }
    }
    let known: BTreeSet<_> = evidence.rows.deliveries.iter().map(|delivery| delivery.id).collect();
    for request in evidence.requests.iter().filter(|request| !known.contains(&request.delivery)) {
        verdict.complain(FRESH, format!("something arrived for {}, which does not exist", request.delivery));
    }
}

pub(super) fn delivered_was_answered_so(case: &Case<'_>, verdict: &mut Verdict) {
    for delivery in &case.evidence.rows.deliveries {
        let requests = case.requests_of(delivery.id);
        let last = delivery.state.attempt_count + delivery.state.earlier_attempts;
        let arrived = requests.iter().any(|request| request.attempt == last && request.answer.is_success());
        if delivery.state.status == "delivered" && !arrived {
            verdict.complain(ANSWERED, format!("{} is delivered, and the receiver never said so", delivery.id));
        }
        for attempt in case.attempts_of(delivery.id) {
            let Some(status) = attempt.status_code else { continue };
            let was_answered = requests.iter().any(|request| {
                request.attempt == attempt.number && request.answer == crate::inbox::Answer::Status(status)
            });
            if !was_answered {
                let (id, number) = (delivery.id, attempt.number);
                verdict.complain(ANSWERED, format!("{id}: attempt {number} records a {status} that nobody answered"));
            }
        }
    }
}

pub(super) fn requests_are_explained(case: &Case<'_>, verdict: &mut Verdict) {
    let faults = &case.evidence.faults;
    let lease = i64::try_from(case.evidence.terms.lease.as_micros()).unwrap_or(i64::MAX);
    let leeway = i64::try_from(case.evidence.terms.leeway.as_micros()).unwrap_or(i64::MAX);
    for delivery in &case.evidence.rows.deliveries {
        let id = delivery.id;
        let (requests, tenures) = (case.requests_of(id), case.tenures_of(id));
        let attempts = case.attempts_of(id).len();
        verdict.figures.requests += requests.len();
        verdict.figures.unsettled_requests += requests.len().saturating_sub(attempts);
        if requests.len() > tenures.len() {
            let (sent, claims) = (requests.len(), tenures.len());
            verdict.complain(EXPLAINED, format!("{id} was sent {sent} times, and claimed {claims} times"));
        }
        for tenure in tenures.iter().filter(|tenure| matches!(tenure.end, End::Abandoned(_))) {
            let owner = &tenure.grant.owner;
            let hit = faults.iter().any(|fault| {
                // Whoever is asked to end gives its leases back.
                !matches!(fault.kind, Kind::Started | Kind::Terminated)
                    && fault.worker.as_ref().is_none_or(|worker| worker == owner)
                    && fault.at <= tenure.ended_at
                    && fault.until + lease + leeway >= tenure.claimed_at
            });
            if !hit {
                verdict.complain(EXPLAINED, format!("{id}: {owner} lost its lease, and nothing was done to it"));
            }
        }
    }
}
