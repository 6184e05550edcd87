//! Rules over the history of claims and changes.

use std::time::Duration;

use super::{Case, EARLY, End, FINAL, Fault, HOLDER, Kind, ONE, TAKEOVER, TIME, Tenure, Verdict};
use crate::evidence::{Deed, State};

/// SQLite's own clock functions, by which its history is dated, know milliseconds.
const TICK: i64 = 1_000;

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

pub(super) fn one_at_a_time(case: &Case<'_>, verdict: &mut Verdict) {
    for (id, steps) in &case.steps {
        let mut held = None;
        for step in steps {
            match &step.deed {
                Deed::Claimed(grant) if held.is_some() => {
                    verdict.complain(ONE, format!("{id} was claimed by {} while it was leased", grant.owner));
                    held = Some(grant.token);
                }
                Deed::Claimed(grant) => held = Some(grant.token),
                Deed::Ended(grant) if held != Some(grant.token) => {
                    verdict.complain(ONE, format!("{id}: a lease of {} ended that was not held", grant.owner));
                }
                Deed::Ended(_) => held = None,
                Deed::Changed { .. } => {}
            }
        }
    }
    for (id, tenures) in &case.tenures {
        for tenure in tenures {
            verdict.figures.claims += 1;
            match tenure.end {
                End::Settled(_) => verdict.figures.settled += 1,
                End::Abandoned(_) => verdict.figures.abandoned += 1,
                End::Released => verdict.figures.released += 1,
                End::Open => {}
            }
            if matches!(tenure.end, End::Abandoned(_)) && tenure.ended_at + TICK < tenure.until {
                let early = duration(tenure.until - tenure.ended_at);
                verdict.complain(EARLY, format!("{id}: the lease of {} was taken {early:?} early", tenure.grant.owner));
            }
        }
    }
}

pub(super) fn only_the_holder_settles(case: &Case<'_>, verdict: &mut Verdict) {
    for (id, steps) in &case.steps {
        let mut ended = false;
        for step in steps {
            if let Deed::Changed { before, after } = &step.deed
                && (after.attempt_count > before.attempt_count || after.abandoned_count > before.abandoned_count)
                && !ended
            {
                verdict.complain(HOLDER, format!("{id} was settled or taken back while no lease ended"));
            }
            ended = matches!(step.deed, Deed::Ended(_));
        }
        let settled: Vec<(&Tenure<'_>, &State)> = case
            .tenures_of(*id)
            .iter()
            .filter_map(|tenure| if let End::Settled(state) = &tenure.end { Some((tenure, state)) } else { None })
            .collect();
        let attempts = case.attempts_of(*id);
        for (tenure, state) in &settled {
            let number = state.attempt_count + state.earlier_attempts;
            let matches = attempts.iter().any(|attempt| {
                attempt.number == number
                    && attempt.token == tenure.grant.token
                    && attempt.worker_id == tenure.grant.owner
            });
            if !matches {
                let owner = &tenure.grant.owner;
                verdict.complain(HOLDER, format!("{id}: {owner} settled attempt {number}, and its row is another's"));
            }
        }
        for attempt in attempts {
            if !settled.iter().any(|(tenure, _)| tenure.grant.token == attempt.token) {
                let worker = &attempt.worker_id;
                verdict.complain(HOLDER, format!("{id}: attempt {} of {worker} has no lease", attempt.number));
            }
        }
    }
}

pub(super) fn settled_is_final(case: &Case<'_>, verdict: &mut Verdict) {
    for (id, steps) in &case.steps {
        for step in steps {
            if let Deed::Changed { before, after } = &step.deed
                && ["delivered", "dead", "cancelled"].contains(&before.status.as_str())
            {
                verdict.complain(FINAL, format!("{id} was {}, and became {}", before.status, after.status));
            }
        }
    }
}

pub(super) fn next_attempt_is_on_time(case: &Case<'_>, verdict: &mut Verdict) {
    let schedule = &case.evidence.terms.schedule;
    for (id, steps) in &case.steps {
        let mut due_at = None;
        for step in steps {
            match &step.deed {
                Deed::Changed { before, after } if after.attempt_count > before.attempt_count => {
                    due_at = after.next_attempt_at;
                    let (Some(settled_at), Some(next)) = (after.last_attempted_at, after.next_attempt_at) else {
                        continue;
                    };
                    let nth = (after.attempt_count as usize - 1).min(schedule.len() - 1);
                    if (next - settled_at - micros(schedule[nth])).abs() >= TICK {
                        let delay = duration(next - settled_at);
                        let count = after.attempt_count;
                        verdict.complain(TIME, format!("{id} waits {delay:?} after attempt {count}"));
                    }
                }
                Deed::Claimed(_) if due_at.is_some_and(|due_at| step.at + TICK < due_at) => {
                    verdict.complain(TIME, format!("{id} was claimed before it was due"));
                }
                _ => {}
            }
        }
    }
}

pub(super) fn taken_over_in_time(case: &Case<'_>, verdict: &mut Verdict) {
    let terms = &case.evidence.terms;
    let longest = terms.poll + terms.leeway;
    for (id, tenures) in &case.tenures {
        for (n, tenure) in tenures.iter().enumerate() {
            let End::Abandoned(_) = tenure.end else { continue };
            let recovery = duration(tenure.ended_at - began(&case.evidence.faults, tenure.until, tenure.ended_at));
            verdict.figures.latest_recovery = verdict.figures.latest_recovery.max(recovery);
            if recovery > longest {
                let owner = &tenure.grant.owner;
                verdict.complain(TAKEOVER, format!("{id}: the lease of {owner} was taken back after {recovery:?}"));
            }
            let Some(next) = tenures.get(n + 1) else { continue };
            let takeover = duration(next.claimed_at - began(&case.evidence.faults, tenure.until, next.claimed_at));
            verdict.figures.latest_takeover = verdict.figures.latest_takeover.max(takeover);
            if takeover > longest {
                verdict.complain(TAKEOVER, format!("{id} was claimed anew {takeover:?} after its lease expired"));
            }
        }
    }
}

/// From when on somebody could have done it: since the lease expired, since the database was last away, and since one of
/// those who were there when it was done had started, or was last frozen.
fn began(faults: &[Fault], expired_at: i64, done_at: i64) -> i64 {
    let of_database = faults.iter().filter(|fault| fault.worker.is_none() && fault.at <= done_at);
    let returned_at = of_database.map(|fault| fault.until.min(done_at)).max().unwrap_or(i64::MIN);
    let started = faults.iter().filter(|fault| fault.kind == Kind::Started && fault.at <= done_at);
    let there_since = started.filter_map(|start| there_since(faults, start, done_at)).min();
    there_since.unwrap_or(done_at).max(returned_at).max(expired_at)
}

/// Since when a dispatcher was there without a break, if it was there at this instant.
fn there_since(faults: &[Fault], start: &Fault, at: i64) -> Option<i64> {
    let mut since = start.at;
    for fault in faults.iter().filter(|fault| fault.worker == start.worker && fault.at <= at) {
        match fault.kind {
            Kind::Frozen if fault.until > at => return None,
            Kind::Frozen => since = since.max(fault.until),
            Kind::Killed | Kind::Failpoint | Kind::Terminated if fault.until < at => return None,
            _ => {}
        }
    }
    Some(since)
}
