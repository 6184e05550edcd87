//! Endpoints: who gets which events, and what happens while one is paused or gone.

use std::num::NonZeroU32;
use std::time::Duration;

use postrider::store::{Lane, Settle, Settlement};
use postrider::{
    DeliveryStatus, EndpointId, EndpointSettings, EndpointStatus, Enqueued, Fact, NewEvent, Secret, Verdict,
};

use crate::trial::{Trial, event_to, operator, retry_after, settle_of, url_of};

fn paid() -> NewEvent {
    NewEvent::new("invoice.paid", "{}")
}

fn receivers(enqueued: &Enqueued) -> Vec<EndpointId> {
    let mut ids: Vec<_> = enqueued.deliveries().iter().map(|delivery| delivery.endpoint_id.unwrap()).collect();
    ids.sort();
    ids
}

fn sorted<const N: usize>(mut ids: [EndpointId; N]) -> [EndpointId; N] {
    ids.sort();
    ids
}

pub async fn an_endpoint_is_shown_as_it_was_registered(t: &Trial) {
    let now = t.freeze();
    let settings = EndpointSettings {
        secrets: vec![Secret::generate(), Secret::generate()],
        max_in_flight: NonZeroU32::new(3),
        timeout: Some(Duration::from_millis(1500)),
        headers: vec![("x-team".to_owned(), "billing".to_owned())],
        description: "the billing team's".to_owned(),
        ..EndpointSettings::default()
    };
    let created = t.endpoint_of("acme", "a", &["invoice.*", "refund.made"], settings.clone()).await;
    assert_eq!(created.tenant, "acme");
    assert_eq!(created.url, url_of("a"));
    let patterns: Vec<_> = created.event_types.iter().map(postrider::EventTypePattern::as_str).collect();
    assert_eq!(patterns, ["invoice.*", "refund.made"]);
    assert_eq!((created.status, created.status_reason.as_deref()), (EndpointStatus::Active, None));
    assert_eq!(created.settings, settings);
    assert_eq!(created.created_at, now);
    assert_eq!(t.other.endpoint(created.id).await.unwrap(), Some(created));
}

pub async fn an_endpoint_that_is_not_there_is_none(t: &Trial) {
    let id = EndpointId::from_uuid(uuid::Uuid::now_v7());
    assert_eq!(t.store.endpoint(id).await.unwrap(), None);
    assert!(!t.store.set_endpoint_status(id, EndpointStatus::Paused, None, &operator()).await.unwrap());
    assert!(t.audit().await.is_empty(), "what was not done is not audited");
}

pub async fn an_event_fans_out_to_the_endpoints_whose_pattern_matches(t: &Trial) {
    let everything = t.endpoint("a", &["*"]).await.id;
    let below = t.endpoint("b", &["invoice.*"]).await.id;
    let exact = t.endpoint("c", &["refund.made", "invoice.paid"]).await.id;
    t.endpoint("d", &["invoices.*"]).await;
    t.endpoint("e", &["invoice.paid.twice"]).await;

    let enqueued = t.enqueue(paid()).await;
    assert_eq!(receivers(&enqueued), sorted([everything, below, exact]));
    let deeper = t.enqueue(NewEvent::new("invoice.line.added", "{}")).await;
    assert_eq!(receivers(&deeper), sorted([everything, below]));
    let stem = t.enqueue(NewEvent::new("invoice", "{}")).await;
    assert_eq!(receivers(&stem), [everything]);

    for delivery in enqueued.deliveries() {
        let shown = t.delivery(delivery.id).await;
        let endpoint = t.store.endpoint(delivery.endpoint_id.unwrap()).await.unwrap().unwrap();
        assert_eq!(shown.endpoint_id, delivery.endpoint_id);
        assert_eq!(shown.destination_url, endpoint.url);
    }
}

pub async fn a_pattern_has_no_other_wildcards(t: &Trial) {
    // The underscore is a wildcard of SQL's LIKE; in a pattern of ours it is itself.
    t.endpoint("a", &["a_b.*"]).await;
    let exact = t.endpoint("b", &["a_b"]).await.id;
    assert!(t.enqueue(NewEvent::new("axb.c", "{}")).await.deliveries().is_empty());
    assert!(t.enqueue(NewEvent::new("axb", "{}")).await.deliveries().is_empty());
    assert!(t.enqueue(NewEvent::new("A_B.c", "{}")).await.deliveries().is_empty(), "case counts");
    assert_eq!(receivers(&t.enqueue(NewEvent::new("a_b", "{}")).await), [exact]);
}

pub async fn two_patterns_of_one_endpoint_that_match_make_one_delivery(t: &Trial) {
    let id = t.endpoint("a", &["*", "invoice.*", "invoice.paid"]).await.id;
    assert_eq!(receivers(&t.enqueue(paid()).await), [id]);
}

pub async fn p21_an_event_does_not_reach_another_tenants_endpoints(t: &Trial) {
    let ours = t.endpoint("a", &["*"]).await.id;
    let theirs = t.endpoint_of("acme", "b", &["*"], EndpointSettings::default()).await.id;
    assert_eq!(receivers(&t.enqueue(paid()).await), [ours]);
    assert_eq!(receivers(&t.enqueue(paid().tenant("acme")).await), [theirs]);
    assert!(t.enqueue(paid().tenant("nobody")).await.deliveries().is_empty());
}

pub async fn an_event_that_nobody_wants_is_kept_without_deliveries(t: &Trial) {
    t.endpoint("a", &["refund.*"]).await;
    let enqueued = t.enqueue(paid()).await;
    assert!(matches!(&enqueued, Enqueued::New { deliveries, .. } if deliveries.is_empty()), "{enqueued:?}");
    let event = t.store.event(enqueued.event_id().unwrap()).await.unwrap().expect("the event is kept");
    assert!(event.deliveries.is_empty());
}

pub async fn an_event_with_its_own_destination_does_not_fan_out(t: &Trial) {
    t.endpoint("a", &["*"]).await;
    let enqueued = t.enqueue(event_to("b")).await;
    assert_eq!(enqueued.deliveries().len(), 1);
    assert_eq!(enqueued.deliveries()[0].endpoint_id, None);
}

pub async fn a_disabled_endpoint_gets_no_new_events(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    t.set_endpoint(endpoint.id, EndpointStatus::Disabled).await;
    assert!(t.enqueue(paid()).await.deliveries().is_empty());
    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    assert_eq!(receivers(&t.enqueue(paid()).await), [endpoint.id]);
}

pub async fn a_paused_endpoints_deliveries_wait_until_it_is_resumed(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    let before = t.enqueue(paid()).await.deliveries()[0].id;
    t.set_endpoint(endpoint.id, EndpointStatus::Paused).await;
    let paused = t.store.endpoint(endpoint.id).await.unwrap().unwrap();
    assert_eq!((paused.status, paused.status_reason.as_deref()), (EndpointStatus::Paused, Some("a drill")));

    let meanwhile = t.enqueue(paid()).await.deliveries()[0].id;
    let unaffected = t.deliver_to("b").await;
    let claimed: Vec<_> = t.claim("w1", 10).await.iter().map(|claim| claim.lease.delivery_id).collect();
    assert_eq!(claimed, [unaffected], "only the other lane is claimed");
    assert_eq!(t.delivery(meanwhile).await.status, DeliveryStatus::Pending);

    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    let mut claimed: Vec<_> = t.claim("w1", 10).await.iter().map(|claim| claim.lease.delivery_id).collect();
    claimed.sort();
    assert_eq!(claimed, [before, meanwhile]);
    let resumed = t.store.endpoint(endpoint.id).await.unwrap().unwrap();
    assert_eq!(resumed.status, EndpointStatus::Active);
}

pub async fn many_paused_lanes_do_not_hide_the_one_that_is_not(t: &Trial) {
    for number in 0..40 {
        let endpoint = t.endpoint(&format!("host{number}"), &["*"]).await;
        t.set_endpoint(endpoint.id, EndpointStatus::Paused).await;
    }
    let active = t.endpoint("z", &["*"]).await.id;
    assert_eq!(t.enqueue(paid()).await.deliveries().len(), 41);
    let claim = t.claim_one("w1").await;
    assert_eq!(claim.lane, Lane::of_endpoint(active));
}

pub async fn what_operators_do_to_endpoints_is_audited(t: &Trial) {
    let now = t.freeze();
    let endpoint = t.endpoint_of("acme", "a", &["*"], EndpointSettings::default()).await;
    for status in [EndpointStatus::Paused, EndpointStatus::Active, EndpointStatus::Disabled] {
        t.advance_secs(1);
        t.set_endpoint(endpoint.id, status).await;
    }
    let audit = t.audit().await;
    let actions: Vec<_> = audit.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["endpoint.disable", "endpoint.resume", "endpoint.pause", "endpoint.create"], "newest first");
    for entry in &audit {
        assert_eq!((entry.operator.as_str(), entry.tenant.as_deref()), ("olga", Some("acme")));
        assert_eq!(entry.subject, endpoint.id.to_string());
        assert_eq!(entry.reason.as_deref(), Some("a drill").filter(|_| entry.action != "endpoint.create"));
    }
    assert_eq!(audit[3].at, now);
}

pub async fn a_claim_carries_the_endpoint_as_it_is_now(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue(paid()).await;
    t.enqueue(paid()).await;
    let claims = t.claim("w1", 10).await;
    assert_eq!(claims.len(), 2);
    for claim in claims {
        assert_eq!(claim.lane, Lane::of_endpoint(endpoint.id));
        assert_eq!(claim.endpoint.as_deref(), Some(&endpoint));
    }
}

fn gone(settle: Settle) -> Settle {
    Settle { disable_endpoint: true, ..settle }
}

pub async fn a_410_disables_the_endpoint_once_and_holds_its_backlog(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    for _ in 0..4 {
        t.enqueue(paid().topic("billing").metadata("order", 7)).await;
    }
    let claims = t.claim("w1", 2).await;
    let settles: Vec<_> = claims.iter().map(|claim| gone(settle_of(claim.lease, retry_after(30)))).collect();
    assert_eq!(t.settle_all("w1", &settles).await, [Settlement::Applied; 2]);

    let disabled = t.store.endpoint(endpoint.id).await.unwrap().unwrap();
    assert_eq!(disabled.status, EndpointStatus::Disabled);
    assert!(disabled.status_reason.is_some(), "it says why");
    assert!(t.claim("w1", 10).await.is_empty(), "the backlog is held");
    assert!(t.enqueue(paid()).await.deliveries().is_empty(), "new events pass it by");

    let told: Vec<_> = t.announced().await.into_iter().filter(|told| told.fact == Fact::EndpointDisabled).collect();
    assert_eq!(told.len(), 1, "announced once, however many said it");
    assert_eq!((told[0].endpoint_id, told[0].topic.as_str()), (Some(endpoint.id), "billing"));
    assert_eq!(told[0].metadata["order"], 7);

    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    assert_eq!(t.claim("w1", 10).await.len(), 2, "the backlog goes on when it is resumed");
}

pub async fn a_second_410_of_a_disabled_endpoint_is_not_announced_again(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue(paid()).await;
    t.enqueue(paid()).await;
    let claims = t.claim("w1", 2).await;
    for claim in &claims {
        assert_eq!(t.settle_all("w1", &[gone(settle_of(claim.lease, Verdict::Dead))]).await, [Settlement::Applied]);
    }
    let times = |told: &[postrider::Announcement]| told.iter().filter(|t| t.fact == Fact::EndpointDisabled).count();
    assert_eq!(times(&t.announced().await), 1);
    assert_eq!(
        t.settle_all("w1", &[gone(settle_of(claims[0].lease, Verdict::Dead))]).await,
        [Settlement::AppliedEarlier]
    );

    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    assert_eq!(
        t.settle_all("w1", &[gone(settle_of(claims[0].lease, Verdict::Dead))]).await,
        [Settlement::AppliedEarlier]
    );
    let status = t.store.endpoint(endpoint.id).await.unwrap().unwrap().status;
    assert_eq!(status, EndpointStatus::Active, "p5: a repeated settle does not disable it a second time");
    assert_eq!(times(&t.announced().await), 1);
}

pub async fn a_410_disables_an_endpoint_that_was_paused_meanwhile(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue(paid()).await;
    let claim = t.claim_one("w1").await;
    t.set_endpoint(endpoint.id, EndpointStatus::Paused).await;
    assert_eq!(t.settle_all("w1", &[gone(settle_of(claim.lease, Verdict::Dead))]).await, [Settlement::Applied]);
    let status = t.store.endpoint(endpoint.id).await.unwrap().unwrap().status;
    assert_eq!(status, EndpointStatus::Disabled, "it is gone, whoever paused it");
    assert_eq!(t.announced().await.iter().filter(|told| told.fact == Fact::EndpointDisabled).count(), 1);
}

pub async fn a_410_of_a_stale_lease_disables_nothing(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue(paid()).await;
    let claim = t.claim_one("w1").await;
    t.advance_secs(31);
    t.store.recover(10, 10).await.unwrap();
    assert_eq!(t.settle_all("w1", &[gone(settle_of(claim.lease, Verdict::Dead))]).await, [Settlement::LeaseLost]);
    assert_eq!(t.store.endpoint(endpoint.id).await.unwrap().unwrap().status, EndpointStatus::Active);
    assert!(t.announced().await.is_empty());
}

pub async fn a_410_of_a_bare_destination_is_an_ordinary_failure(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    assert_eq!(t.settle_all("w1", &[gone(settle_of(claim.lease, Verdict::Dead))]).await, [Settlement::Applied]);
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Dead);
    assert!(t.announced().await.iter().all(|told| told.fact == Fact::Dead));
}
