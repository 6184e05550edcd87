//! Looking: listings with filters and cursors, counts, events, and the overview.

use std::time::Duration;

use jiff::SignedDuration;
use postrider::{DeliveryFilter, DeliveryId, DeliveryStatus, EventId, NewEvent, PageRequest, Verdict};
use uuid::Uuid;

use crate::trial::{Trial, event_to, retry_after};

async fn ids(t: &Trial, filter: &DeliveryFilter) -> Vec<DeliveryId> {
    let mut listed: Vec<_> = t.list(filter, 2).await.iter().map(|delivery| delivery.id).collect();
    assert_eq!(t.store.count_deliveries(filter).await.unwrap(), listed.len() as u64, "{filter:?}");
    assert!(listed.is_sorted_by(|newer, older| newer > older), "newest first: {listed:?}");
    listed.reverse();
    listed
}

pub async fn every_filter_narrows_the_listing_and_the_count(t: &Trial) {
    let start = t.freeze();
    let endpoint = t.endpoint("fan", &["refund.*"]).await;
    let mut all = Vec::new();
    for (number, event) in [
        event_to("a"),
        event_to("a").tenant("acme"),
        NewEvent::new("refund.made", "{}"),
        NewEvent::new("refund.made", "{}").to("https://b.example.com/hook"),
        event_to("a"),
    ]
    .into_iter()
    .enumerate()
    {
        let enqueued = t.enqueue(event).await;
        assert_eq!(enqueued.deliveries().len(), 1, "{number}");
        all.push((enqueued.event_id().unwrap(), enqueued.deliveries()[0].id));
        t.advance_secs(10);
    }
    let id = |number: usize| all[number].1;
    let claims = t.claim("w1", 10).await;
    for (number, verdict) in [(0, Verdict::Delivered), (1, Verdict::Dead), (2, retry_after(600))] {
        let claim = claims.iter().find(|claim| claim.lease.delivery_id == id(number)).unwrap();
        t.settle("w1", claim.lease, verdict).await;
    }
    t.store.cancel(id(3), "not wanted", &crate::trial::operator()).await.unwrap();

    let any = DeliveryFilter::default();
    assert_eq!(ids(t, &any).await, [id(0), id(1), id(2), id(3), id(4)]);
    let of = |tenant: &str| DeliveryFilter { tenant: Some(tenant.to_owned()), ..any.clone() };
    assert_eq!(ids(t, &of("acme")).await, [id(1)]);
    assert_eq!(ids(t, &of("default")).await, [id(0), id(2), id(3), id(4)]);
    assert!(ids(t, &of("nobody")).await.is_empty());
    for (status, number) in [
        (DeliveryStatus::Delivered, 0),
        (DeliveryStatus::Dead, 1),
        (DeliveryStatus::Failed, 2),
        (DeliveryStatus::Cancelled, 3),
        (DeliveryStatus::Pending, 4),
    ] {
        assert_eq!(ids(t, &DeliveryFilter { status: Some(status), ..any.clone() }).await, [id(number)], "{status}");
    }
    assert_eq!(ids(t, &DeliveryFilter { endpoint_id: Some(endpoint.id), ..any.clone() }).await, [id(2)]);
    assert_eq!(ids(t, &DeliveryFilter { event_id: Some(all[3].0), ..any.clone() }).await, [id(3)]);
    let of_type = |event_type: &str| DeliveryFilter { event_type: Some(event_type.to_owned()), ..any.clone() };
    assert_eq!(ids(t, &of_type("refund.made")).await, [id(2), id(3)]);
    assert!(ids(t, &of_type("refund.*")).await.is_empty(), "an exact type, not a pattern");

    let at = |seconds| Some(start + SignedDuration::from_secs(seconds));
    assert_eq!(ids(t, &DeliveryFilter { since: at(20), ..any.clone() }).await, [id(2), id(3), id(4)]);
    assert_eq!(ids(t, &DeliveryFilter { until: at(20), ..any.clone() }).await, [id(0), id(1)]);
    assert_eq!(ids(t, &DeliveryFilter { since: at(10), until: at(30), ..any.clone() }).await, [id(1), id(2)]);
    let combined = DeliveryFilter {
        tenant: Some("default".to_owned()),
        status: Some(DeliveryStatus::Failed),
        endpoint_id: Some(endpoint.id),
        event_id: Some(all[2].0),
        event_type: Some("refund.made".to_owned()),
        since: at(20),
        until: at(21),
    };
    assert_eq!(ids(t, &combined).await, [id(2)]);
    let none = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..combined };
    assert!(ids(t, &none).await.is_empty());
}

pub async fn pages_are_not_shifted_by_what_is_written_meanwhile(t: &Trial) {
    t.freeze();
    let mut before = Vec::new();
    for _ in 0..10 {
        t.advance(Duration::from_millis(2));
        before.push(t.deliver_to("a").await);
    }
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let page = PageRequest::new(3, cursor).unwrap();
        let page = t.store.deliveries(&DeliveryFilter::default(), &page).await.unwrap();
        listed.extend(page.items.iter().map(|delivery| delivery.id));
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

pub async fn a_page_holds_up_to_its_limit(t: &Trial) {
    t.backlog("a", 260).await;
    for limit in [1, 50, 250] {
        let page = PageRequest::new(limit, None).unwrap();
        let page = t.store.deliveries(&DeliveryFilter::default(), &page).await.unwrap();
        assert_eq!(page.items.len(), limit as usize);
        assert!(page.next.is_some());
    }
    assert_eq!(t.list(&DeliveryFilter::default(), 250).await.len(), 260);
    for limit in [0, 251, u32::MAX] {
        assert_eq!(PageRequest::new(limit, None).unwrap_err().code, "limit_invalid");
    }
}

pub async fn a_page_that_ends_exactly_at_the_end_is_the_last_with_rows(t: &Trial) {
    t.backlog("a", 6).await;
    let listed = t.list(&DeliveryFilter::default(), 3).await;
    let distinct: std::collections::BTreeSet<_> = listed.iter().map(|delivery| delivery.id).collect();
    assert_eq!((listed.len(), distinct.len()), (6, 6));
}

pub async fn an_event_is_shown_with_payload_and_deliveries(t: &Trial) {
    t.endpoint("a", &["*"]).await;
    t.endpoint("b", &["invoice.*"]).await;
    let event = NewEvent::new("invoice.paid", r#"{"b":1,"a":2}"#).metadata("order", 7);
    let enqueued = t.enqueue(event.clone()).await;
    let claim = t.claim("w1", 1).await.remove(0);
    t.settle("w1", claim.lease, Verdict::Delivered).await;

    let shown = t.store.event(enqueued.event_id().unwrap()).await.unwrap().unwrap();
    assert_eq!(shown.payload, event.payload);
    assert_eq!(shown.metadata, event.metadata);
    let mut written: Vec<_> =
        enqueued.deliveries().iter().map(|delivery| (delivery.id, delivery.destination_url.as_str())).collect();
    written.sort();
    let listed: Vec<_> =
        shown.deliveries.iter().map(|delivery| (delivery.id, delivery.destination_url.as_str())).collect();
    assert_eq!(listed, written, "oldest first");
    for delivery in &shown.deliveries {
        let settled = delivery.id == claim.lease.delivery_id;
        assert_eq!(delivery.status, if settled { DeliveryStatus::Delivered } else { DeliveryStatus::Pending });
    }
}

pub async fn what_is_not_there_is_none(t: &Trial) {
    assert_eq!(t.store.event(EventId::from_uuid(Uuid::now_v7())).await.unwrap(), None);
    assert_eq!(t.store.delivery(DeliveryId::from_uuid(Uuid::now_v7())).await.unwrap(), None);
    let event_id = Some(EventId::from_uuid(Uuid::now_v7()));
    let filter = DeliveryFilter { event_id, ..DeliveryFilter::default() };
    assert!(ids(t, &filter).await.is_empty());
    assert_eq!(t.overview().await, postrider::store::Overview::default());
}

pub async fn the_overview_counts_every_status_and_place(t: &Trial) {
    let now = t.freeze();
    for (status, count) in [
        (DeliveryStatus::Delivered, 4),
        (DeliveryStatus::Dead, 3),
        (DeliveryStatus::Cancelled, 2),
        (DeliveryStatus::Failed, 5),
    ] {
        for _ in 0..count {
            t.delivery_in(status).await;
        }
    }
    t.backlog("a", 6).await;
    t.claim("w1", 4).await;
    t.enqueue(event_to("a").deliver_at(now + SignedDuration::from_hours(1))).await;
    let overview = t.overview().await;
    assert_eq!((overview.pending, overview.failed, overview.delivered), (7, 5, 4));
    assert_eq!((overview.dead, overview.cancelled), (3, 2));
    assert_eq!((overview.due, overview.in_flight, overview.scheduled), (2, 4, 6));
}

pub async fn the_overview_tells_how_long_the_oldest_has_been_due(t: &Trial) {
    t.freeze();
    assert_eq!(t.overview().await.oldest_due_age, None);
    let first = t.deliver_to("a").await;
    t.advance_secs(60);
    t.deliver_to("b").await;
    t.advance(Duration::from_millis(30_500));
    assert_eq!(t.overview().await.oldest_due_age, Some(Duration::from_millis(90_500)));
    t.store.cancel(first, "not wanted", &crate::trial::operator()).await.unwrap();
    assert_eq!(t.overview().await.oldest_due_age, Some(Duration::from_millis(30_500)));
    assert_eq!(t.claim("w1", 10).await.len(), 1);
    assert_eq!(t.overview().await.oldest_due_age, None, "nothing is waiting");
}

pub async fn p21_the_overview_of_a_tenant_counts_only_its_own(t: &Trial) {
    let now = t.freeze();
    let later = now + SignedDuration::from_hours(1);
    t.enqueue_all(vec![
        event_to("a"),
        event_to("a").tenant("acme"),
        event_to("b").tenant("acme"),
        event_to("b").tenant("acme").deliver_at(later),
        event_to("b").deliver_at(later),
    ])
    .await;
    t.advance_secs(60);
    t.enqueue(event_to("c").tenant("young")).await;
    let acme = t.store.overview(Some("acme")).await.unwrap();
    assert_eq!((acme.pending, acme.due, acme.scheduled, acme.in_flight), (3, 2, 1, 0));
    let young = t.store.overview(Some("young")).await.unwrap();
    assert_eq!((young.pending, young.due, young.oldest_due_age), (1, 1, Some(Duration::ZERO)));
    assert_eq!(t.store.overview(Some("nobody")).await.unwrap(), postrider::store::Overview::default());
    assert_eq!(t.claim("w1", 10).await.len(), 4);
    assert_eq!(t.store.overview(Some("acme")).await.unwrap().in_flight, 2);
    assert_eq!(t.overview().await.pending, 6, "all tenants");
}

/// Every page of a listing that looks at no more than `looked_at` rows for each: the ids in them, and each next one.
async fn pages(t: &Trial, filter: &DeliveryFilter, looked_at: u32) -> (Vec<Vec<DeliveryId>>, Vec<Uuid>) {
    let (mut pages, mut cursors, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page = PageRequest::new(3, cursor).unwrap().looking_at(looked_at);
        let page = t.store.deliveries(filter, &page).await.unwrap();
        pages.push(page.items.iter().map(|delivery| delivery.id).collect());
        cursors.extend(page.next.map(|cursor| cursor.0));
        assert!(cursors.is_sorted_by(|newer, older| newer > older), "each goes further down: {cursors:?}");
        cursor = page.next;
        if cursor.is_none() {
            return (pages, cursors);
        }
    }
}

pub async fn a_page_looks_at_no_more_than_it_may_and_says_where_to_go_on(t: &Trial) {
    // The oldest four: two delivered, one dead, one failed. Then cancelled ones, and many that wait.
    let mut all = t.backlog("a", 4).await;
    let claims = t.claim("w1", 4).await;
    for (id, verdict) in all.iter().zip([Verdict::Delivered, Verdict::Delivered, Verdict::Dead, retry_after(600)]) {
        let claim = claims.iter().find(|claim| claim.lease.delivery_id == *id).unwrap();
        t.settle("w1", claim.lease, verdict).await;
    }
    let cancelled = t.backlog("b", 5).await;
    for id in &cancelled {
        t.store.cancel(*id, "not wanted", &crate::trial::operator()).await.unwrap();
    }
    all.extend(&cancelled);
    all.extend(t.backlog("c", 21).await);
    all.sort_unstable_by(|one, other| other.cmp(one));
    let oldest = |range: std::ops::Range<usize>| all[all.len() - range.end..all.len() - range.start].to_vec();

    let any = DeliveryFilter::default();
    let of_type = DeliveryFilter { event_type: Some("invoice.paid".to_owned()), ..any.clone() };
    let of_nobody = DeliveryFilter { event_type: Some("no.such".to_owned()), ..any.clone() };
    let in_status = |status| DeliveryFilter { status: Some(status), ..any.clone() };
    for tenant in [None, Some("default".to_owned())] {
        for (filter, expected, most_pages) in [
            (any.clone(), all.clone(), 10),
            (of_type.clone(), all.clone(), 10),
            (of_nobody.clone(), Vec::new(), 4),
            (in_status(DeliveryStatus::Delivered), oldest(0..2), 4),
            (in_status(DeliveryStatus::Dead), oldest(2..3), 1),
            (in_status(DeliveryStatus::Failed), oldest(3..4), 4),
            (in_status(DeliveryStatus::Cancelled), oldest(4..9), 2),
            (in_status(DeliveryStatus::Pending), oldest(9..30), 9),
        ] {
            let filter = DeliveryFilter { tenant: tenant.clone(), ..filter };
            let (found, _) = pages(t, &filter, 10).await;
            assert_eq!(found.concat(), expected, "{filter:?}");
            assert!(found.len() <= most_pages, "{filter:?}: {found:?}");
        }
    }
    let (found, cursors) = pages(t, &in_status(DeliveryStatus::Delivered), 10).await;
    assert!(found[0].is_empty() && cursors[0] == all[9].as_uuid(), "the tenth is the last that was looked at");

    let event_types = |event_type: &str| postrider::EventFilter {
        event_type: Some(event_type.to_owned()),
        ..postrider::EventFilter::default()
    };
    let (mut listed, mut cursor) = (0, None);
    loop {
        let page = PageRequest::new(7, cursor).unwrap().looking_at(10);
        let none = t.store.events(&event_types("no.such"), &page, 1_000).await.unwrap();
        assert!(none.items.is_empty());
        let page = t.store.events(&event_types("invoice.paid"), &page, 1_000_000).await.unwrap();
        assert_eq!(none.next.is_some(), listed < 30 && 30 - listed >= 10, "after {listed}");
        listed += page.items.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, 30);
}

pub async fn p21_no_cursor_tells_of_what_is_somebody_elses(t: &Trial) {
    let theirs = t.endpoint_of("acme", "acme", &["*"], postrider::EndpointSettings::default()).await;
    let own = t.deliver_to("a").await;
    let claim = t.claim("w1", 1).await.remove(0);
    t.settle("w1", claim.lease, Verdict::Dead).await;
    for _ in 0..8 {
        t.enqueue(NewEvent::new("x", "{}").tenant("acme")).await;
    }
    for claim in t.claim("w1", 8).await {
        t.settle("w1", claim.lease, Verdict::Dead).await;
    }
    let default = DeliveryFilter { tenant: Some("default".to_owned()), ..DeliveryFilter::default() };
    let of_theirs = DeliveryFilter { endpoint_id: Some(theirs.id), ..default.clone() };
    let (found, cursors) = pages(t, &of_theirs, 3).await;
    assert!(found.concat().is_empty() && cursors.is_empty(), "there is nothing to be seen: {cursors:?}");
    for status in [DeliveryStatus::Dead, DeliveryStatus::Delivered] {
        let filter = DeliveryFilter { status: Some(status), ..default.clone() };
        let (found, cursors) = pages(t, &filter, 3).await;
        let expected = if status == DeliveryStatus::Dead { vec![own] } else { Vec::new() };
        assert_eq!(found.concat(), expected, "{status}");
        assert!(cursors.iter().all(|cursor| *cursor == own.as_uuid()), "{status}: {cursors:?}");
    }
}
