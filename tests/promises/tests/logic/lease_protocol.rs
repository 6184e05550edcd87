//! The protocol of leases, searched through by a model checker; see [`crate::lease`] for the model.
//!
//! `POSTRIDER_LONG=1` searches far larger spaces (minutes); `POSTRIDER_SHOW_PATHS=1` prints how each of the broken
//! protocols goes wrong, and how the scenes come about.

use std::collections::{BTreeSet, HashMap};

use stateright::{Checker as _, HasDiscoveries, Model as _, Path};

use crate::lease::properties::{
    ONCE, ONE_LEASE, OVERTAKEN, PROMISES, QUARANTINED, REPEATED, SENT_TWICE_AT_ONCE, STALE, TRUE_ANSWER, UNDONE,
};
use crate::lease::{Action, Bounds, Guard, LeaseModel, Protocol, State};

const NOTHING: Bounds = Bounds { crashes: 0, renewals: 0, releases: 0, cancels: 0, failovers: 0 };
const TROUBLE: Bounds = Bounds { crashes: 1, renewals: 1, releases: 1, ..NOTHING };

/// What a search found, and how much it looked at.
struct Found {
    discoveries: BTreeSet<&'static str>,
    states: usize,
}

fn is_long() -> bool {
    std::env::var_os("POSTRIDER_LONG").is_some()
}

/// Looks at every state, unless one breaks a promise.
fn search(model: LeaseModel) -> Found {
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).threads(2).spawn_bfs().join();
    let discoveries = checker.discoveries();
    show(&discoveries);
    Found { discoveries: discoveries.into_keys().collect(), states: checker.unique_state_count() }
}

/// Looks until all of these promises were seen broken, and says which were.
fn broken(model: LeaseModel, promises: &[&'static str]) -> BTreeSet<&'static str> {
    let wanted = HasDiscoveries::AllOf(promises.iter().copied().collect());
    let discoveries = model.checker().finish_when(wanted).spawn_bfs().join().discoveries();
    show(&discoveries);
    discoveries.into_keys().filter(|name| promises.contains(name)).collect()
}

#[allow(clippy::print_stderr, reason = "on demand, to be read by people")]
fn show(discoveries: &HashMap<&'static str, Path<State, Action>>) {
    if std::env::var_os("POSTRIDER_SHOW_PATHS").is_some() {
        for (name, path) in discoveries {
            eprintln!("{name}:\n    {:?}", path.clone().into_actions());
        }
    }
}

#[track_caller]
fn assert_holds(model: LeaseModel, at_least: usize, scenes: &[&'static str]) {
    let Found { discoveries, states } = search(model);
    let broken: Vec<_> = PROMISES.iter().filter(|promise| discoveries.contains(*promise)).collect();
    assert!(broken.is_empty(), "broken: {broken:?}; POSTRIDER_SHOW_PATHS=1 shows how");
    assert!(states >= at_least, "only {states} states were looked at");
    for scene in scenes {
        assert!(discoveries.contains(scene), "it never happened that {scene}");
    }
}

/// P3, P4, P5, P6, P7, P9: pauses, lost answers, takeovers, a crash, a renewal and a release, in every order.
#[test]
fn with_the_random_token_every_promise_holds() {
    let max_attempts = if is_long() { 3 } else { 2 };
    let protocol = Protocol { max_attempts, ..Protocol::default() };
    let model = LeaseModel { protocol, bounds: TROUBLE, deliveries: 1 };
    assert_holds(model, 50_000, &[OVERTAKEN, REPEATED, QUARANTINED]);
}

/// P4, P5, P6, P7, P9, also after a failover that loses the end of the log. What it cannot keep is said as well: until
/// the forgotten leases have run out, two workers may send the same delivery.
#[test]
fn with_the_random_token_every_promise_survives_a_failover_that_loses_the_end_of_the_log() {
    let scenes = [REPEATED, UNDONE, QUARANTINED, SENT_TWICE_AT_ONCE];
    let takeovers = Protocol { max_attempts: 1, ..Protocol::default() };
    let bounds = Bounds { crashes: 1, renewals: 1, failovers: 1, ..NOTHING };
    assert_holds(LeaseModel { protocol: takeovers, bounds, deliveries: 1 }, 30_000, &scenes);

    let retries = Protocol { max_abandoned: if is_long() { 2 } else { 1 }, ..Protocol::default() };
    let bounds = Bounds { renewals: 1, failovers: 1, ..NOTHING };
    assert_holds(LeaseModel { protocol: retries, bounds, deliveries: 1 }, 20_000, &scenes);
}

/// P6: an operator cancels while attempts are under way, or between them.
#[test]
fn an_operator_who_cancels_breaks_nothing() {
    let bounds = Bounds { releases: 1, cancels: 1, ..NOTHING };
    let model = LeaseModel { protocol: Protocol::default(), bounds, deliveries: 1 };
    assert_holds(model, 15_000, &[OVERTAKEN, REPEATED]);
}

/// Two deliveries, whose leases a worker holds side by side.
#[test]
fn two_deliveries_do_not_disturb_each_other() {
    let max_abandoned = if is_long() { 2 } else { 1 };
    let protocol = Protocol { max_attempts: 1, max_abandoned, ..Protocol::default() };
    assert_holds(LeaseModel { protocol, bounds: TROUBLE, deliveries: 2 }, 10_000, &[REPEATED, QUARANTINED]);
}

/// P4 the other way round: a worker that was held up claims the same delivery again, and its older attempt settles the
/// newer claim. No crash and no failover is needed.
#[test]
fn the_owners_name_alone_lets_a_stale_claim_settle() {
    let protocol = Protocol { guard: Guard::Owner, ..Protocol::default() };
    let model = LeaseModel { protocol, bounds: NOTHING, deliveries: 1 };
    assert_eq!(broken(model, &[STALE, TRUE_ANSWER]), BTreeSet::from([STALE, TRUE_ANSWER]));
}

/// A number that is counted up is as good as a random token, until a failover makes the database count the same numbers
/// again.
#[test]
fn a_lease_number_that_is_counted_up_holds_until_a_failover_repeats_it() {
    let protocol = Protocol { guard: Guard::OwnerAndNumber, max_attempts: 1, ..Protocol::default() };
    assert_holds(LeaseModel { protocol, bounds: TROUBLE, deliveries: 1 }, 2_000, &[OVERTAKEN, REPEATED]);

    let bounds = Bounds { failovers: 1, ..NOTHING };
    let model = LeaseModel { protocol, bounds, deliveries: 1 };
    assert_eq!(broken(model, &[STALE, TRUE_ANSWER]), BTreeSet::from([STALE, TRUE_ANSWER]));
}

/// P5 the other way round: were the lease not consumed by the statement that writes the result, a repeated settle would
/// be applied twice.
#[test]
fn a_lease_that_settling_does_not_consume_is_settled_twice() {
    let protocol = Protocol { settling_consumes: false, ..Protocol::default() };
    let model = LeaseModel { protocol, bounds: NOTHING, deliveries: 1 };
    assert_eq!(broken(model, &[ONCE]), BTreeSet::from([ONCE]));
}

/// P3 the other way round: a worker that does not count its lease by a clock of its own sends beside its successor.
#[test]
fn a_worker_that_never_doubts_its_lease_sends_beside_another() {
    let protocol = Protocol { doubts: false, ..Protocol::default() };
    let model = LeaseModel { protocol, bounds: NOTHING, deliveries: 1 };
    assert_eq!(broken(model, &[ONE_LEASE]), BTreeSet::from([ONE_LEASE]));
}
