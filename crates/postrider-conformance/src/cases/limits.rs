//! An endpoint's own limits: how many at a time, and how often.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::store::{Claim, ClaimRequest, Claimed, EndpointChange, Lane};
use postrider::{Endpoint, EndpointId, EndpointSettings, NewEvent, Store, Verdict};

use crate::trial::{Trial, claim_from, event_to, operator, request, worker};

fn rated(rate: &str) -> EndpointSettings {
    EndpointSettings { rate_limit: Some(rate.parse().unwrap()), ..EndpointSettings::default() }
}

async fn backlog(t: &Trial, endpoint: &Endpoint, count: usize) {
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}").to_endpoint(endpoint.id); count]).await;
}

/// Claims by themselves, of one statement.
async fn claim(store: &dyn Store, limit: u32) -> Claimed {
    store.claim(&request("w1", limit)).await.unwrap()
}

async fn settle(t: &Trial, claims: &[Claim]) {
    for claim in claims {
        t.settle("w1", claim.lease, Verdict::Delivered).await;
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Whether a token is there after this long, as far as a database's arithmetic can say.
fn about(within: Option<Duration>, expected: Duration) -> bool {
    within.is_some_and(|within| within.abs_diff(expected) <= Duration::from_micros(100))
}

pub async fn a_rate_limit_lets_its_burst_through_and_then_one_by_one(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("100/s")).await;
    backlog(t, &endpoint, 40).await;
    let first = claim(&*t.store, 100).await;
    assert_eq!(first.claims.len(), 10, "a tenth of a second's worth");
    assert!(about(first.next_token_in, ms(10)), "{:?}", first.next_token_in);
    let none = claim(&*t.store, 100).await;
    assert!(none.claims.is_empty() && about(none.next_token_in, ms(10)), "{:?}", none.next_token_in);
    t.advance(ms(9));
    let none = claim(&*t.store, 100).await;
    assert!(none.claims.is_empty() && about(none.next_token_in, ms(1)), "{:?}", none.next_token_in);
    t.advance(ms(1));
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 1);
    t.advance(ms(25));
    let two = claim(&*t.store, 100).await;
    assert_eq!(two.claims.len(), 2, "two and a half, of which two are whole");
    assert!(about(two.next_token_in, ms(5)), "{:?}", two.next_token_in);
    t.advance(ms(5));
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 1, "the half was not lost");
}

pub async fn a_bucket_holds_no_more_than_its_burst(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("100/s")).await;
    backlog(t, &endpoint, 100).await;
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 10);
    t.advance(Duration::from_hours(24));
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 10, "a day's rest is no licence to flood");
}

pub async fn a_slow_rate_is_kept_to_the_letter(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("6/m")).await;
    backlog(t, &endpoint, 10).await;
    let mut taken = claim(&*t.store, 100).await.claims.len();
    assert_eq!(taken, 1);
    for _ in 0..6 {
        t.advance(ms(9_999));
        taken += claim(&*t.store, 100).await.claims.len();
        t.advance(ms(1));
        taken += claim(&*t.store, 100).await.claims.len();
    }
    assert_eq!(taken, 7, "six in a minute after the first");
}

pub async fn a_token_is_waited_for_only_while_something_waits_for_it(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("10/s")).await;
    assert_eq!(claim(&*t.store, 100).await.next_token_in, None, "nothing is there");
    backlog(t, &endpoint, 1).await;
    let one = claim(&*t.store, 100).await;
    assert_eq!((one.claims.len(), one.next_token_in), (1, None), "nothing was left behind");
    backlog(t, &endpoint, 1).await;
    assert!(about(claim(&*t.store, 100).await.next_token_in, ms(100)));
}

pub async fn of_several_rates_the_first_token_is_told(t: &Trial) {
    t.freeze();
    for (host, rate) in [("a", "1/s"), ("b", "4/s"), ("c", "2/s")] {
        let endpoint = t.endpoint_of("default", host, &["*"], rated(rate)).await;
        backlog(t, &endpoint, 3).await;
    }
    let first = claim(&*t.store, 100).await;
    assert_eq!(first.claims.len(), 3, "one each");
    assert!(about(first.next_token_in, ms(250)), "{:?}", first.next_token_in);
    t.advance(ms(250));
    let next = claim(&*t.store, 100).await;
    assert_eq!(next.claims.len(), 1);
    assert!(about(next.next_token_in, ms(250)), "{:?}", next.next_token_in);
}

pub async fn a_rate_limit_holds_up_nobody_else(t: &Trial) {
    t.freeze();
    let slow = t.endpoint_of("default", "a", &["*"], rated("1/h")).await;
    let fast = t.endpoint("b", &["*"]).await;
    backlog(t, &slow, 50).await;
    backlog(t, &fast, 20).await;
    t.backlog("c", 20).await;
    let claims = t.claim("w1", 100).await;
    let of = |lane: &Lane| claims.iter().filter(|claim| claim.lane == *lane).count();
    assert_eq!((of(&Lane::of_endpoint(slow.id)), of(&Lane::of_endpoint(fast.id))), (1, 20));
    assert_eq!(claims.len(), 41);
}

pub async fn a_rate_limit_holds_for_all_dispatchers_together(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("100/s")).await;
    backlog(t, &endpoint, 100).await;
    let claimants = (0..6).map(|number| {
        let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
        tokio::spawn(async move { claim_from(&*store, &format!("w{number}"), 100, crate::trial::LEASE).await.len() })
    });
    let taken: usize = join_all(claimants).await.into_iter().map(Result::unwrap).sum();
    // A claimant that finds the endpoint in another's hands passes it by.
    let taken = taken + claim_from(&*t.other, "last", 100, crate::trial::LEASE).await.len();
    assert_eq!(taken, 10);
    t.advance(ms(30));
    assert_eq!(claim_from(&*t.other, "last", 100, crate::trial::LEASE).await.len(), 3);
    assert_eq!(claim_from(&*t.store, "last", 100, crate::trial::LEASE).await.len(), 0);
}

pub async fn a_claim_takes_no_more_tokens_than_deliveries(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], rated("100/s")).await;
    backlog(t, &endpoint, 40).await;
    for _ in 0..5 {
        assert_eq!(claim(&*t.store, 2).await.claims.len(), 2, "what a claim had no room for is still there");
    }
    assert!(claim(&*t.store, 2).await.claims.is_empty());
}

pub async fn a_changed_rate_holds_from_then_on(t: &Trial) {
    t.freeze();
    let mut endpoint = t.endpoint_of("default", "a", &["*"], rated("1/h")).await;
    backlog(t, &endpoint, 100).await;
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 1);
    endpoint.settings = rated("100/s");
    let mut endpoint = replace(t, &endpoint).await;
    // The bucket may be found as empty as it was left, but it fills at the new rate.
    let next = claim(&*t.store, 100).await;
    assert!(next.claims.is_empty() && next.next_token_in.is_some_and(|within| within <= ms(10)), "{next:?}");
    t.advance(Duration::from_secs(1));
    assert_eq!(claim(&*t.store, 100).await.claims.len(), 10);
    endpoint.settings = EndpointSettings::default();
    replace(t, &endpoint).await;
    assert_eq!(claim(&*t.store, 50).await.claims.len(), 50, "no limit any more");
}

async fn replace(t: &Trial, endpoint: &Endpoint) -> Endpoint {
    t.store.replace_endpoint(endpoint, EndpointChange::Update, &operator()).await.unwrap().unwrap()
}

fn narrow(max_in_flight: u32, rate: Option<&str>) -> EndpointSettings {
    let rate_limit = rate.map(|rate| rate.parse().unwrap());
    EndpointSettings { max_in_flight: NonZeroU32::new(max_in_flight), rate_limit, ..EndpointSettings::default() }
}

/// A claim of a worker that has so many of the endpoint's in flight, and says so.
async fn claim_with(t: &Trial, id: EndpointId, in_flight: u32) -> Claimed {
    let in_flight = vec![(Lane::of_endpoint(id), in_flight)];
    t.store.claim(&ClaimRequest { in_flight, ..request("w1", 100) }).await.unwrap()
}

pub async fn an_endpoints_own_limit_counts_what_is_in_flight(t: &Trial) {
    let endpoint = t.endpoint_of("default", "a", &["*"], narrow(3, None)).await;
    backlog(t, &endpoint, 20).await;
    let first = claim_with(t, endpoint.id, 0).await.claims;
    assert_eq!(first.len(), 3);
    assert!(claim_with(t, endpoint.id, 3).await.claims.is_empty());
    settle(t, &first[..1]).await;
    let next = claim_with(t, endpoint.id, 2).await.claims;
    assert_eq!(next.len(), 1, "one slot came free");
    let leases: Vec<_> = first[1..].iter().chain(&next).map(|claim| claim.lease).collect();
    assert_eq!(t.store.release(&worker("w1"), &leases).await.unwrap(), 3);
    assert_eq!(claim_with(t, endpoint.id, 0).await.claims.len(), 3);
}

pub async fn a_changed_limit_holds_from_then_on(t: &Trial) {
    let mut endpoint = t.endpoint_of("default", "a", &["*"], narrow(2, None)).await;
    backlog(t, &endpoint, 20).await;
    assert_eq!(claim_with(t, endpoint.id, 0).await.claims.len(), 2);
    endpoint.settings = narrow(5, None);
    let mut endpoint = replace(t, &endpoint).await;
    assert_eq!(claim_with(t, endpoint.id, 2).await.claims.len(), 3);
    endpoint.settings = narrow(1, None);
    let mut endpoint = replace(t, &endpoint).await;
    assert!(claim_with(t, endpoint.id, 5).await.claims.is_empty());
    endpoint.settings = EndpointSettings::default();
    replace(t, &endpoint).await;
    assert_eq!(claim_with(t, endpoint.id, 5).await.claims.len(), 15);
}

pub async fn a_full_endpoint_waits_for_a_slot_and_not_for_a_token(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint_of("default", "a", &["*"], narrow(2, Some("100/s"))).await;
    backlog(t, &endpoint, 20).await;
    let first = claim_with(t, endpoint.id, 0).await;
    assert_eq!((first.claims.len(), first.next_token_in), (2, None));
    let none = claim_with(t, endpoint.id, 2).await;
    assert!(none.claims.is_empty(), "the tokens are there, the slots are not");
    assert_eq!(none.next_token_in, None, "or a dispatcher would wake up for nothing, again and again");
}

pub async fn a_limit_is_no_reason_to_keep_to_the_lane(t: &Trial) {
    let endpoint = t.endpoint_of("default", "a", &["*"], narrow(1, None)).await;
    backlog(t, &endpoint, 10).await;
    t.enqueue_all((0..30).map(|number| event_to(&format!("host{number}"))).collect()).await;
    let claims = t.claim("w1", 31).await;
    assert!(claims.iter().filter(|claim| claim.endpoint.is_none()).count() == 30, "everyone else had a turn");
}
