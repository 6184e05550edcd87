//! Claims: whose turn it is, how many at a time, and never twice.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{Claim, ClaimRequest, Lane};
use postrider::{DeliveryId, EndpointSettings, NewEvent, Store};

use crate::trial::{LEASE, Trial, claim_from, event_to, lane_of, request, retry_after};

fn per_lane(claims: &[Claim]) -> BTreeMap<Lane, usize> {
    let mut counts = BTreeMap::new();
    for claim in claims {
        *counts.entry(claim.lane.clone()).or_default() += 1;
    }
    counts
}

const SMALL: [&str; 5] = ["b", "c", "d", "e", "f"];

async fn one_large_and_five_small_lanes(t: &Trial) {
    t.backlog("a", 1000).await;
    for host in SMALL {
        t.backlog(host, 2).await;
    }
}

pub async fn a_claim_grants_a_lease_that_the_delivery_shows(t: &Trial) {
    let now = t.freeze();
    let id = t.deliver_to("a").await;
    let claimed = t.store.claim(&request("w1", 10)).await.unwrap();
    assert_eq!(claimed.at, now, "the database's time");
    assert_eq!(claimed.claims.len(), 1);
    assert_eq!(claimed.claims[0].lease.delivery_id, id);
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.lease_owner.as_deref(), Some("w1"));
    assert_eq!(delivery.lease_until, Some(now + SignedDuration::try_from(LEASE).unwrap()));
    assert_eq!(t.places().await.leases, [id]);
}

pub async fn a_claim_of_nothing_is_empty(t: &Trial) {
    let claimed = t.store.claim(&request("w1", 10)).await.unwrap();
    assert!(claimed.claims.is_empty() && claimed.cursor.is_none());
    t.deliver_to("a").await;
    let claimed = t.store.claim(&request("w1", 0)).await.unwrap();
    assert!(claimed.claims.is_empty(), "no free slots, no claims");
}

pub async fn p15_a_lane_with_a_thousand_waiting_gets_no_more_than_its_share(t: &Trial) {
    one_large_and_five_small_lanes(t).await;
    let claimed = t.store.claim(&request("w1", 12)).await.unwrap();
    let counts = per_lane(&claimed.claims);
    assert_eq!(claimed.claims.len(), 12);
    for host in SMALL {
        assert_eq!(counts.get(&lane_of(host)), Some(&2), "{host} gets all it has: {counts:?}");
    }
    assert_eq!(counts.get(&lane_of("a")), Some(&2), "the large lane gets as much: {counts:?}");
}

pub async fn with_one_slot_per_lane_every_lane_gets_one(t: &Trial) {
    one_large_and_five_small_lanes(t).await;
    let claimed = t.store.claim(&request("w1", 6)).await.unwrap();
    let counts = per_lane(&claimed.claims);
    assert_eq!(counts.len(), 6, "{counts:?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

pub async fn lanes_take_turns_when_there_are_more_lanes_than_slots(t: &Trial) {
    one_large_and_five_small_lanes(t).await;
    let mut after = None;
    let mut seen: BTreeMap<Lane, usize> = BTreeMap::new();
    for _ in 0..6 {
        let claimed = t.store.claim(&ClaimRequest { after, ..request("w1", 1) }).await.unwrap();
        // A claim that began after the last lane may find nothing there, and sends the next one back to the start.
        let claimed = if claimed.claims.is_empty() {
            assert_eq!(claimed.cursor, None);
            t.store.claim(&request("w1", 1)).await.unwrap()
        } else {
            claimed
        };
        assert_eq!(claimed.claims.len(), 1);
        *seen.entry(claimed.claims[0].lane.clone()).or_default() += 1;
        after = claimed.cursor;
    }
    assert_eq!(seen.len(), 6, "six claims of one slot reach six lanes: {seen:?}");
}

pub async fn the_cursor_comes_to_every_one_of_many_lanes(t: &Trial) {
    let hosts: Vec<String> = (0..100).map(|number| format!("host{number}")).collect();
    let events = hosts.iter().flat_map(|host| [event_to(host), event_to(host)]).collect();
    t.enqueue_all(events).await;
    let mut after = None;
    let mut seen = BTreeSet::new();
    for _ in 0..30 {
        let claimed = t.store.claim(&ClaimRequest { after, ..request("w1", 10) }).await.unwrap();
        seen.extend(claimed.claims.iter().map(|claim| claim.lane.clone()));
        after = claimed.cursor;
        if seen.len() == hosts.len() {
            return;
        }
    }
    panic!("after 30 claims of ten, only {} of 100 lanes had a turn", seen.len());
}

pub async fn p15_what_is_left_over_does_not_go_to_the_lane_that_has_the_most_in_flight(t: &Trial) {
    t.backlog("a", 200).await;
    t.backlog("b", 200).await;
    t.enqueue_all((0..20).map(|number| event_to(&format!("small{number}"))).collect()).await;
    let in_flight = vec![(lane_of("a"), 150)];
    let claimed = t.store.claim(&ClaimRequest { lane_limit: 500, in_flight, ..request("w1", 100) }).await.unwrap();
    let counts = per_lane(&claimed.claims);
    assert_eq!((claimed.claims.len(), counts.len()), (100, 22), "{counts:?}");
    assert!(counts[&lane_of("b")] >= counts[&lane_of("a")], "{counts:?}");
}

pub async fn no_lane_gets_more_than_its_limit(t: &Trial) {
    t.backlog("a", 20).await;
    t.backlog("b", 20).await;
    let claimed = t.store.claim(&ClaimRequest { lane_limit: 5, ..request("w1", 100) }).await.unwrap();
    assert_eq!(per_lane(&claimed.claims), BTreeMap::from([(lane_of("a"), 5), (lane_of("b"), 5)]));
}

pub async fn what_is_in_flight_counts_against_a_lanes_limit(t: &Trial) {
    t.backlog("a", 20).await;
    t.backlog("b", 20).await;
    t.backlog("c", 20).await;
    let in_flight = vec![(lane_of("a"), 3), (lane_of("b"), 5), (lane_of("nobody"), 7)];
    let claimed = t.store.claim(&ClaimRequest { lane_limit: 5, in_flight, ..request("w1", 100) }).await.unwrap();
    assert_eq!(per_lane(&claimed.claims), BTreeMap::from([(lane_of("a"), 2), (lane_of("c"), 5)]));
}

pub async fn a_lane_may_have_more_than_its_limit_if_the_caller_looks_ahead(t: &Trial) {
    for host in ["a", "b", "c", "d"] {
        t.backlog(host, 20).await;
    }
    let in_flight = vec![(lane_of("a"), 5), (lane_of("b"), 9)];
    let ahead = vec![(lane_of("a"), 3), (lane_of("b"), 2), (lane_of("c"), 4)];
    let asked = ClaimRequest { lane_limit: 5, in_flight, ahead, ..request("w1", 100) };
    let counts = per_lane(&t.store.claim(&asked).await.unwrap().claims);
    assert_eq!(counts, BTreeMap::from([(lane_of("a"), 3), (lane_of("c"), 9), (lane_of("d"), 5)]));
}

pub async fn an_endpoint_with_a_limit_of_its_own_has_nothing_ahead(t: &Trial) {
    let rate_limit = Some("1000/s".parse().unwrap());
    let narrow = EndpointSettings { max_in_flight: NonZeroU32::new(2), ..EndpointSettings::default() };
    let metered = EndpointSettings { rate_limit, ..EndpointSettings::default() };
    let mut lanes = Vec::new();
    for (host, settings) in [("a", narrow), ("b", metered), ("c", EndpointSettings::default())] {
        lanes.push(Lane::of_endpoint(t.endpoint_of("default", host, &["*"], settings).await.id));
    }
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 20]).await;
    let ahead = lanes.iter().map(|lane| (lane.clone(), 4)).collect();
    let asked = ClaimRequest { lane_limit: 5, ahead, ..request("w1", 100) };
    let counts = per_lane(&t.store.claim(&asked).await.unwrap().claims);
    assert_eq!(lanes.iter().map(|lane| counts[lane]).collect::<Vec<_>>(), [2, 5, 9]);
}

pub async fn a_lane_that_is_over_its_limit_gets_nothing(t: &Trial) {
    t.backlog("a", 3).await;
    let in_flight = vec![(lane_of("a"), 9)];
    let claimed = t.store.claim(&ClaimRequest { lane_limit: 5, in_flight, ..request("w1", 10) }).await.unwrap();
    assert!(claimed.claims.is_empty());
}

pub async fn p15_lanes_without_free_slots_do_not_hold_up_the_others(t: &Trial) {
    let full: Vec<String> = (0..40).map(|number| format!("a{number}")).collect();
    t.enqueue_all(full.iter().map(|host| event_to(host)).collect()).await;
    let id = t.deliver_to("z").await;
    let in_flight: Vec<_> = full.iter().map(|host| (lane_of(host), 5)).collect();
    let mut after = None;
    for _ in 0..4 {
        let asked = ClaimRequest { lane_limit: 5, in_flight: in_flight.clone(), after, ..request("w1", 10) };
        let claimed = t.store.claim(&asked).await.unwrap();
        if let [claim] = claimed.claims.as_slice() {
            assert_eq!(claim.lease.delivery_id, id);
            return;
        }
        assert!(claimed.claims.is_empty());
        after = claimed.cursor;
    }
    panic!("the one lane with room was not reached");
}

pub async fn an_endpoints_own_limit_is_kept_if_it_is_lower(t: &Trial) {
    let of = |max_in_flight| EndpointSettings {
        max_in_flight: NonZeroU32::new(max_in_flight),
        ..EndpointSettings::default()
    };
    let low = Lane::of_endpoint(t.endpoint_of("default", "a", &["*"], of(2)).await.id);
    let high = Lane::of_endpoint(t.endpoint_of("default", "b", &["*"], of(100)).await.id);
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 10]).await;
    let asked = ClaimRequest { lane_limit: 5, ..request("w1", 100) };
    let claimed = t.store.claim(&asked).await.unwrap();
    assert_eq!(per_lane(&claimed.claims), BTreeMap::from([(low.clone(), 2), (high.clone(), 5)]));

    // One of the two comes back. Whether a store counts its leases or what it is told, it comes to the same.
    let returned = claimed.claims.iter().find(|claim| claim.lane == low).unwrap().lease;
    assert_eq!(t.store.release(&crate::trial::worker("w1"), &[returned]).await.unwrap(), 1);
    let in_flight = vec![(low.clone(), 1), (high.clone(), 5)];
    let claimed = t.store.claim(&ClaimRequest { in_flight, ..asked }).await.unwrap();
    assert_eq!(per_lane(&claimed.claims), BTreeMap::from([(low, 1)]));
}

pub async fn a_claim_never_exceeds_its_limit(t: &Trial) {
    for number in 0..10 {
        t.backlog(&format!("host{number}"), 10).await;
    }
    let mut taken = 0;
    for limit in [1, 2, 3, 7, 10, 13, 31] {
        let mut after = None;
        for _ in 0..2 {
            let claimed = t.store.claim(&ClaimRequest { after, ..request("w1", limit) }).await.unwrap();
            assert!(claimed.claims.len() <= limit as usize, "{} of at most {limit}", claimed.claims.len());
            taken += claimed.claims.len();
            after = claimed.cursor;
        }
    }
    assert!(taken > 0);
    assert_eq!(t.places().await.leases.len(), taken);
}

pub async fn within_a_lane_the_one_that_was_due_first_is_claimed_first(t: &Trial) {
    t.freeze();
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(t.deliver_to("a").await);
        t.advance(Duration::from_millis(1));
    }
    let mut claimed = Vec::new();
    for _ in 0..10 {
        claimed.extend(t.claim("w1", 1).await.iter().map(|claim| claim.lease.delivery_id));
    }
    assert_eq!(claimed, ids);
}

pub async fn a_retry_queues_behind_what_was_due_before_it(t: &Trial) {
    t.freeze();
    let retried = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    t.settle("w1", claim.lease, retry_after(30)).await;
    t.advance_secs(10);
    let newer = t.deliver_to("a").await;
    t.advance_secs(20);
    assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
    t.advance_secs(1);
    let newest = t.deliver_to("a").await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.extend(t.claim("w1", 1).await.iter().map(|claim| claim.lease.delivery_id));
    }
    assert_eq!(claimed, [newer, retried, newest]);
}

async fn claim_until_empty(store: Arc<dyn Store>, name: String) -> Vec<DeliveryId> {
    let mut taken = Vec::new();
    loop {
        let claims = claim_from(&*store, &name, 7, LEASE).await;
        if claims.is_empty() {
            return taken;
        }
        taken.extend(claims.iter().map(|claim| claim.lease.delivery_id));
    }
}

pub async fn p3_concurrent_claimants_never_share_and_leave_nothing(t: &Trial) {
    let mut all = BTreeSet::new();
    for host in ["a", "b", "c"] {
        all.extend(t.backlog(host, 150).await);
    }
    let claimants: Vec<_> = (0..6)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            tokio::spawn(claim_until_empty(store, format!("w{number}")))
        })
        .collect();
    let mut taken = Vec::new();
    for claimant in claimants {
        taken.extend(claimant.await.unwrap());
    }
    // Something that a concurrent claim was looking at may be passed over; the next claim finds it.
    taken.extend(claim_until_empty(Arc::clone(&t.store), "last".to_owned()).await);
    assert_eq!(taken.len(), all.len(), "nobody took what another had");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), all, "everything was taken");
    assert_eq!(t.places().await.leases.len(), all.len());
}

pub async fn every_claim_of_a_delivery_has_a_token_of_its_own(t: &Trial) {
    t.deliver_to("a").await;
    let mut tokens = BTreeSet::new();
    for _ in 0..5 {
        let claim = t.claim_one("w1").await;
        tokens.insert(claim.lease.token.0);
        assert_eq!(t.store.release(&crate::trial::worker("w1"), &[claim.lease]).await.unwrap(), 1);
    }
    assert_eq!(tokens.len(), 5);
}

pub async fn an_earlier_processs_deliveries_are_claimable_after_a_start(t: &Trial) {
    t.freeze();
    t.backlog("a", 3).await;
    assert_eq!(claim_from(&*t.other, "crashed", 10, LEASE).await.len(), 3);
    t.advance_secs(31);
    let _guard = t.store.start_dispatching(&crate::trial::worker("w1")).await.unwrap();
    t.store.recover(10, 10).await.unwrap();
    assert_eq!(t.claim("w1", 10).await.len(), 3);
}
