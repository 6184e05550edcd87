//! Looking at what a server shows: events in pages, whose things everything was, how much has happened, and how the
//! database is.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{FindingLevel, LastMinute};
use postrider::{
    DeliveryStatus, EndpointSettings, EndpointStatus, EnqueueError, Event, EventFilter, EventId, NewEvent, PageRequest,
    Verdict,
};

use crate::trial::{Trial, event_to, operator, retry_after};

const MANY_BYTES: usize = 1 << 30;

async fn events(t: &Trial, filter: &EventFilter, page_size: u32, max_bytes: usize) -> Vec<Event> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageRequest::new(page_size, cursor).unwrap();
        let page = t.store.events(filter, &page, max_bytes).await.unwrap();
        assert!(page.items.len() <= page_size as usize, "a page keeps its limit");
        let bytes: usize = page.items.iter().map(|event| event.payload.len()).sum();
        assert!(bytes <= max_bytes || page.items.len() == 1, "{bytes} bytes in {} events", page.items.len());
        assert!(!page.items.is_empty() || page.next.is_none(), "a page that goes on has something");
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

fn ids(events: &[Event]) -> Vec<EventId> {
    events.iter().map(|event| event.id).collect()
}

pub async fn events_are_listed_newest_first_by_every_filter(t: &Trial) {
    let start = t.freeze();
    let mut made = Vec::new();
    for event in [
        event_to("a").metadata("order", 7),
        event_to("a").tenant("acme"),
        NewEvent::new("refund.made", "[1, 2]"),
        NewEvent::new("refund.made", "{}").tenant("acme").topic("billing"),
        event_to("b"),
    ] {
        made.push(t.enqueue(event).await.event_id().unwrap());
        t.advance_secs(10);
    }
    let those = |numbers: &[usize]| numbers.iter().map(|number| made[*number]).collect::<Vec<_>>();
    let any = EventFilter::default();
    let all = events(t, &any, 2, MANY_BYTES).await;
    assert_eq!(ids(&all), those(&[4, 3, 2, 1, 0]));
    for event in &all {
        assert_eq!(t.store.event(event.id).await.unwrap().as_ref(), Some(event), "listed as it is shown");
    }
    let acme = EventFilter { tenant: Some("acme".to_owned()), ..any.clone() };
    assert_eq!(ids(&events(t, &acme, 1, MANY_BYTES).await), those(&[3, 1]));
    let refunds = EventFilter { event_type: Some("refund.made".to_owned()), ..any.clone() };
    assert_eq!(ids(&events(t, &refunds, 50, MANY_BYTES).await), those(&[3, 2]));
    let pattern = EventFilter { event_type: Some("refund.*".to_owned()), ..any.clone() };
    assert!(events(t, &pattern, 50, MANY_BYTES).await.is_empty(), "an exact type, not a pattern");
    let at = |seconds| Some(start + SignedDuration::from_secs(seconds));
    let between = EventFilter { since: at(10), until: at(30), ..any.clone() };
    assert_eq!(ids(&events(t, &between, 50, MANY_BYTES).await), those(&[2, 1]));
    let since = EventFilter { since: at(30), ..any.clone() };
    assert_eq!(ids(&events(t, &since, 50, MANY_BYTES).await), those(&[4, 3]));
    let together = EventFilter { since: at(20), ..acme };
    assert_eq!(ids(&events(t, &together, 50, MANY_BYTES).await), those(&[3]));
    let nobody = EventFilter { tenant: Some("nobody".to_owned()), ..any };
    assert!(events(t, &nobody, 50, MANY_BYTES).await.is_empty());
}

pub async fn a_listed_event_has_its_deliveries_as_they_stand(t: &Trial) {
    t.endpoint("a", &["*"]).await;
    t.endpoint("b", &["*"]).await;
    let written = t.enqueue_all(vec![NewEvent::new("invoice.paid", r#"{"b":1,"a":2}"#); 3]).await;
    let claim = t.claim("w1", 1).await.remove(0);
    t.settle("w1", claim.lease, Verdict::Delivered).await;
    let listed = events(t, &EventFilter::default(), 2, MANY_BYTES).await;
    assert_eq!(listed.len(), 3);
    for event in &listed {
        let enqueued = written.iter().find(|enqueued| enqueued.event_id() == Some(event.id)).unwrap();
        let shown: BTreeSet<_> = event.deliveries.iter().map(|delivery| delivery.id).collect();
        assert_eq!(shown, enqueued.deliveries().iter().map(|delivery| delivery.id).collect());
        for delivery in &event.deliveries {
            let settled = delivery.id == claim.lease.delivery_id;
            assert_eq!(delivery.status, if settled { DeliveryStatus::Delivered } else { DeliveryStatus::Pending });
        }
        assert_eq!(event.payload, r#"{"b":1,"a":2}"#);
    }
}

pub async fn a_page_of_events_ends_before_it_is_too_large(t: &Trial) {
    t.freeze();
    let mut made = Vec::new();
    for size in [10, 1000, 1000, 1000, 5000, 1000, 10] {
        t.advance_secs(1);
        let payload = format!("\"{}\"", "x".repeat(size - 2));
        made.push(t.enqueue(NewEvent::new("invoice.paid", payload)).await.event_id().unwrap());
    }
    made.reverse();
    for (page_size, max_bytes) in [(50, 2500), (50, 1000), (50, 1), (50, 0), (2, 2500), (50, MANY_BYTES)] {
        let listed = events(t, &EventFilter::default(), page_size, max_bytes).await;
        assert_eq!(ids(&listed), made, "pages of {page_size} and {max_bytes} bytes");
    }
    let page = t.store.events(&EventFilter::default(), &PageRequest::default(), 2500).await.unwrap();
    assert_eq!(page.items.len(), 2, "10 and 1000 fit, 5000 more do not");
}

pub async fn an_event_for_one_endpoint_goes_there_whatever_types_it_wants(t: &Trial) {
    let wanted = t.endpoint("a", &["refund.*"]).await;
    t.endpoint("b", &["*"]).await;
    let enqueued = t.enqueue(NewEvent::new("endpoint.test", "{}").to_endpoint(wanted.id)).await;
    assert_eq!(enqueued.deliveries().len(), 1);
    let line = &enqueued.deliveries()[0];
    assert_eq!((line.endpoint_id, line.destination_url.as_str()), (Some(wanted.id), wanted.url.as_str()));
    assert_eq!(t.claim_one("w1").await.endpoint.as_deref(), Some(&wanted));

    t.set_endpoint(wanted.id, EndpointStatus::Paused).await;
    assert_eq!(t.enqueue(NewEvent::new("x", "{}").to_endpoint(wanted.id)).await.deliveries().len(), 1, "it waits");
    t.set_endpoint(wanted.id, EndpointStatus::Disabled).await;
    assert!(t.enqueue(NewEvent::new("x", "{}").to_endpoint(wanted.id)).await.deliveries().is_empty());
    let nobody = postrider::EndpointId::from_uuid(uuid::Uuid::now_v7());
    assert!(t.enqueue(NewEvent::new("x", "{}").to_endpoint(nobody)).await.deliveries().is_empty());
    let both = NewEvent::new("x", "{}").to("https://a.example.com/").to_endpoint(wanted.id);
    assert!(matches!(t.store.enqueue(vec![both]).await, Err(EnqueueError::Refused(_))));
}

pub async fn p21_an_event_for_another_tenants_endpoint_reaches_nobody(t: &Trial) {
    let theirs = t.endpoint_of("acme", "a", &["*"], EndpointSettings::default()).await;
    let enqueued = t.enqueue(NewEvent::new("x", "{}").to_endpoint(theirs.id)).await;
    assert!(enqueued.deliveries().is_empty(), "{enqueued:?}");
    assert_eq!(t.enqueue(NewEvent::new("x", "{}").to_endpoint(theirs.id).tenant("acme")).await.deliveries().len(), 1);
}

pub async fn p21_the_audit_trail_of_a_tenant_shows_only_its_own(t: &Trial) {
    t.freeze();
    let theirs = t.enqueue(event_to("a").tenant("acme")).await.deliveries()[0].id;
    let ours = t.deliver_to("a").await;
    let endpoint = t.endpoint_of("acme", "a", &["*"], EndpointSettings::default()).await;
    t.store.cancel(theirs, "not wanted", &operator()).await.unwrap();
    t.store.cancel(ours, "not wanted", &operator()).await.unwrap();
    t.store.retry(theirs, &operator()).await.unwrap();
    t.set_endpoint(endpoint.id, EndpointStatus::Paused).await;
    t.store.reset_once("acme", "s", &operator()).await.unwrap();
    t.store.reset_once("default", "s", &operator()).await.unwrap();

    let of = async |tenant: &str| {
        let page = t.store.audit(Some(tenant), &PageRequest::default()).await.unwrap();
        assert!(page.items.iter().all(|entry| entry.tenant.as_deref() == Some(tenant)));
        let mut actions: Vec<_> = page.items.into_iter().map(|entry| entry.action).collect();
        actions.sort();
        actions
    };
    let expected = ["delivery.cancel", "delivery.retry", "endpoint.create", "endpoint.pause", "once.reset"];
    assert_eq!(of("acme").await, expected);
    assert_eq!(of("default").await, ["delivery.cancel", "once.reset"]);
    assert!(of("nobody").await.is_empty());
    assert_eq!(t.audit().await.len(), 7, "all tenants");
    let page = t.store.audit(Some("acme"), &PageRequest::new(3, None).unwrap()).await.unwrap();
    let rest = t.store.audit(Some("acme"), &PageRequest::new(3, page.next).unwrap()).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len(), rest.next), (3, 2, None), "pages are of what matches");
}

pub async fn an_announcement_says_whose_it_is(t: &Trial) {
    t.freeze();
    for (tenant, verdict) in [("acme", Verdict::Delivered), ("globex", retry_after(30)), ("acme", Verdict::Dead)] {
        t.enqueue(event_to("a").tenant(tenant)).await;
        t.claim_and_settle(verdict).await;
    }
    let cancelled = t.enqueue(event_to("a").tenant("initech")).await.deliveries()[0].id;
    t.store.cancel(cancelled, "not wanted", &operator()).await.unwrap();
    let tenants: Vec<_> = t.announced().await.into_iter().map(|told| told.tenant).collect();
    assert_eq!(tenants, ["acme", "globex", "acme", "initech"]);
}

pub async fn the_overview_tells_what_happened_in_the_last_minute(t: &Trial) {
    t.freeze();
    assert_eq!(t.overview().await.last_minute, LastMinute::default());
    t.backlog("a", 2).await;
    t.claim_and_settle(Verdict::Delivered).await;
    t.advance_secs(30);
    t.enqueue(event_to("b").tenant("acme")).await;
    t.claim_and_settle(Verdict::Delivered).await;
    t.enqueue_all(vec![event_to("c").tenant("acme"); 3]).await;
    t.claim_and_settle(retry_after(600)).await;
    t.deliver_to("d").await;
    t.claim_and_settle(Verdict::Dead).await;
    let cancelled = t.deliver_to("e").await;
    t.store.cancel(cancelled, "not wanted", &operator()).await.unwrap();
    let minute = |delivered, failed, dead| LastMinute { delivered, failed, dead };
    assert_eq!(t.overview().await.last_minute, minute(3, 3, 1));
    assert_eq!(t.store.overview(Some("acme")).await.unwrap().last_minute, minute(1, 3, 0));
    t.advance_secs(25);
    assert_eq!(t.overview().await.last_minute, minute(3, 3, 1));
    t.advance_secs(10);
    assert_eq!(t.overview().await.last_minute, minute(1, 3, 1), "the first two are over a minute ago");
    t.advance_secs(60);
    assert_eq!(t.overview().await.last_minute, LastMinute::default());
}

pub async fn a_healthy_store_says_so_and_tells_the_time(t: &Trial) {
    let now = t.freeze();
    for store in [&t.store, &t.other] {
        let health = store.health().await.unwrap();
        assert_eq!(health.at, now);
        if let Some(connections) = health.connections {
            assert!(connections.idle <= connections.open && connections.open <= connections.most, "{connections:?}");
        }
    }
}

pub async fn a_diagnosis_says_what_was_looked_at(t: &Trial) {
    t.endpoint("a", &["*"]).await;
    let findings = t.store.diagnose().await.unwrap();
    assert!(!findings.is_empty());
    let checks: BTreeSet<_> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(checks.len(), findings.len(), "each is named once: {findings:?}");
    for finding in &findings {
        assert!(!finding.check.is_empty() && !finding.detail.is_empty(), "{finding:?}");
        let good = finding.level == FindingLevel::Ok;
        assert!(good || finding.hint.is_some(), "what is not good says what to do: {finding:?}");
    }
}

pub async fn pages_of_events_are_not_shifted_by_what_is_written_meanwhile(t: &Trial) {
    t.freeze();
    let mut before = Vec::new();
    for _ in 0..7 {
        t.advance(Duration::from_millis(2));
        before.push(t.enqueue(event_to("a")).await.event_id().unwrap());
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageRequest::new(2, cursor).unwrap();
        let page = t.store.events(&EventFilter::default(), &page, MANY_BYTES).await.unwrap();
        listed.extend(ids(&page.items));
        t.advance(Duration::from_millis(2));
        t.deliver_to("a").await;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    listed.reverse();
    assert_eq!(listed, before, "each once, and none that came later");
}
