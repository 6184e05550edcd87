//! What operators do: retry and cancel, where the state allows it, under their name.

use jiff::SignedDuration;
use postrider::store::{Action, Forbidden, Operator, Settlement};
use postrider::{DeliveryFilter, DeliveryId, DeliveryStatus, Fact, PageRequest, Verdict};
use uuid::Uuid;

use crate::trial::{Trial, event_to, failure, operator, retry_after};

async fn retry(t: &Trial, id: DeliveryId) -> Action {
    t.store.retry(id, &operator()).await.unwrap()
}

async fn cancel(t: &Trial, id: DeliveryId) -> Action {
    t.store.cancel(id, "sent by mistake", &operator()).await.unwrap()
}

pub async fn a_retried_dead_letter_starts_a_new_round_and_keeps_its_history(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    for _ in 0..5 {
        let claim = t.claim_one("w1").await;
        t.settle_all("w1", &[failure(&claim)]).await;
        t.advance_secs(3600);
        t.store.promote(10).await.unwrap();
    }
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Dead);
    let history = t.attempts(id).await;

    let now = t.advance_secs(5);
    assert_eq!(retry(t, id).await, Action::Done);
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Pending);
    assert_eq!((delivery.attempt_count, delivery.earlier_attempts), (0, 5));
    assert_eq!(delivery.next_attempt_at, Some(now));
    assert_eq!(t.attempts(id).await, history, "the history is kept");
    let places = t.places().await;
    assert_eq!((places.ready, places.dead_letters), (vec![id], vec![]));

    let claim = t.claim_one("w1").await;
    assert_eq!((claim.attempt_count, claim.earlier_attempts), (0, 5));
    t.settle_all("w1", &[failure(&claim)]).await;
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(delivery.next_attempt_at, Some(now + SignedDuration::from_secs(30)), "the schedule begins anew");
    let numbers: Vec<_> = t.attempts(id).await.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "the numbers go on");
}

pub async fn p6_a_retry_is_audited_under_the_operators_name(t: &Trial) {
    t.freeze();
    let id = t.delivery_in(DeliveryStatus::Dead).await;
    let now = t.advance_secs(7);
    assert_eq!(t.store.retry(id, &Operator("Ada Lovelace".to_owned())).await.unwrap(), Action::Done);
    let audit = t.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0].operator, "Ada Lovelace");
    assert_eq!(audit[0].action, "delivery.retry");
    assert_eq!(audit[0].subject, id.to_string());
    assert_eq!(audit[0].at, now);
}

pub async fn a_retried_cancelled_delivery_starts_a_new_round(t: &Trial) {
    let now = t.freeze();
    let id = t.delivery_in(DeliveryStatus::Failed).await;
    assert_eq!(cancel(t, id).await, Action::Done);
    assert_eq!(retry(t, id).await, Action::Done);
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Pending);
    assert_eq!((delivery.attempt_count, delivery.earlier_attempts), (0, 1));
    assert_eq!(delivery.next_attempt_at, Some(now));
    assert_eq!(t.claim_one("w1").await.lease.delivery_id, id);
}

pub async fn a_retried_failed_delivery_is_due_now_and_keeps_its_count(t: &Trial) {
    t.freeze();
    let id = t.delivery_in(DeliveryStatus::Failed).await;
    let now = t.advance_secs(3);
    assert_eq!(retry(t, id).await, Action::Done);
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Failed);
    assert_eq!((delivery.attempt_count, delivery.earlier_attempts), (1, 0));
    assert_eq!(delivery.next_attempt_at, Some(now));
    let places = t.places().await;
    assert_eq!((places.ready, places.scheduled), (vec![id], vec![]));
    assert_eq!(t.claim_one("w1").await.attempt_count, 1);
}

pub async fn a_retry_is_forbidden_where_there_is_nothing_to_retry(t: &Trial) {
    t.freeze();
    let delivered = t.delivery_in(DeliveryStatus::Delivered).await;
    assert_eq!(retry(t, delivered).await, Action::Forbidden(Forbidden::AlreadyDelivered));

    let pending = t.deliver_to("a").await;
    assert_eq!(retry(t, pending).await, Action::Forbidden(Forbidden::AlreadyDue));
    let claim = t.claim_one("w1").await;
    assert_eq!(retry(t, pending).await, Action::Forbidden(Forbidden::InFlight));

    t.settle("w1", claim.lease, retry_after(0)).await;
    t.store.promote(10).await.unwrap();
    assert_eq!(t.places().await.ready, [pending]);
    assert_eq!(retry(t, pending).await, Action::Forbidden(Forbidden::AlreadyDue), "failed, but due already");
    t.claim_one("w1").await;
    assert_eq!(retry(t, pending).await, Action::Forbidden(Forbidden::InFlight), "failed, but leased");

    assert_eq!(retry(t, DeliveryId::from_uuid(Uuid::now_v7())).await, Action::NotFound);
    assert!(t.audit().await.is_empty(), "what was not done is not audited");
}

pub async fn a_delivery_for_later_is_not_retried_before_its_first_attempt(t: &Trial) {
    let now = t.freeze();
    let at = now + SignedDuration::from_hours(1);
    let id = t.enqueue(event_to("a").deliver_at(at)).await.deliveries()[0].id;
    assert_eq!(retry(t, id).await, Action::Forbidden(Forbidden::AlreadyDue));
    assert_eq!(t.delivery(id).await.next_attempt_at, Some(at));
}

pub async fn retry_matching_takes_the_oldest_first_and_ends(t: &Trial) {
    t.freeze();
    let mut dead = Vec::new();
    for _ in 0..5 {
        t.advance_secs(1);
        dead.push(t.delivery_in(DeliveryStatus::Dead).await);
    }
    let cancelled = t.delivery_in(DeliveryStatus::Cancelled).await;
    let filter = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    assert_eq!(t.store.retry_matching(&filter, 2, &operator()).await.unwrap(), 2);
    let mut ready = t.places().await.ready;
    ready.sort();
    assert_eq!(ready, dead[..2], "the oldest");
    assert_eq!(t.store.retry_matching(&filter, 2, &operator()).await.unwrap(), 2);
    assert_eq!(t.store.retry_matching(&filter, 2, &operator()).await.unwrap(), 1);
    assert_eq!(t.store.retry_matching(&filter, 2, &operator()).await.unwrap(), 0);
    assert_eq!(t.delivery(cancelled).await.status, DeliveryStatus::Cancelled, "it does not match");
    for id in &dead {
        let delivery = t.delivery(*id).await;
        assert_eq!((delivery.status, delivery.earlier_attempts), (DeliveryStatus::Pending, 1));
    }
    let mut audited: Vec<_> = t.audit().await.into_iter().map(|entry| entry.subject).collect();
    audited.retain(|subject| *subject != cancelled.to_string());
    audited.sort();
    let mut expected: Vec<_> = dead.iter().map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(audited, expected, "each is audited");
}

pub async fn retry_matching_without_a_status_takes_what_may_be_retried(t: &Trial) {
    t.freeze();
    for status in DeliveryStatus::ALL {
        t.delivery_in(status).await;
    }
    t.claim("w1", 1).await;
    let everything = DeliveryFilter::default();
    assert_eq!(t.store.retry_matching(&everything, 100, &operator()).await.unwrap(), 3, "failed, dead, cancelled");
    assert_eq!(
        t.store.retry_matching(&everything, 100, &operator()).await.unwrap(),
        0,
        "again until 0 comes to an end"
    );
    let overview = t.overview().await;
    assert_eq!((overview.pending, overview.failed, overview.delivered), (3, 1, 1));
    assert_eq!((overview.due, overview.in_flight, overview.scheduled), (3, 1, 0));
}

pub async fn retry_matching_takes_only_what_matches(t: &Trial) {
    t.freeze();
    let ours = t.delivery_in(DeliveryStatus::Dead).await;
    t.enqueue(event_to("b").tenant("acme")).await;
    let theirs = t.claim_and_settle(Verdict::Dead).await[0];
    let filter = DeliveryFilter { tenant: Some("acme".to_owned()), ..DeliveryFilter::default() };
    assert_eq!(t.store.retry_matching(&filter, 100, &operator()).await.unwrap(), 1);
    assert_eq!(t.delivery(theirs).await.status, DeliveryStatus::Pending);
    assert_eq!(t.delivery(ours).await.status, DeliveryStatus::Dead);
}

pub async fn a_cancelled_delivery_is_never_claimed_again(t: &Trial) {
    let now = t.freeze();
    let ready = t.deliver_to("a").await;
    let later = now + SignedDuration::from_secs(60);
    let scheduled = t.enqueue(event_to("a").deliver_at(later)).await.deliveries()[0].id;
    assert_eq!(cancel(t, ready).await, Action::Done);
    assert_eq!(cancel(t, scheduled).await, Action::Done);
    let places = t.places().await;
    assert!(places.ready.is_empty() && places.scheduled.is_empty());
    t.advance_secs(3600);
    assert_eq!(t.store.promote(10).await.unwrap().ready, 0);
    assert!(t.claim("w1", 10).await.is_empty());
    for id in [ready, scheduled] {
        let delivery = t.delivery(id).await;
        assert_eq!(delivery.status, DeliveryStatus::Cancelled);
        assert_eq!(delivery.next_attempt_at, None);
        assert_eq!(delivery.error_detail.as_deref(), Some("sent by mistake"));
        assert_eq!(t.times_announced(Fact::Cancelled, id).await, 1);
    }
}

pub async fn a_failed_delivery_can_be_cancelled_and_keeps_its_count(t: &Trial) {
    let id = t.delivery_in(DeliveryStatus::Failed).await;
    assert_eq!(cancel(t, id).await, Action::Done);
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Cancelled, 1));
    let told = t.announced().await;
    let told = told.iter().find(|told| told.fact == Fact::Cancelled).expect("it is announced");
    assert_eq!((told.delivery_id, told.attempt_count), (id, 1));
}

pub async fn a_leased_delivery_can_be_cancelled_and_its_flight_finds_the_lease_gone(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    assert_eq!(t.other.cancel(id, "sent by mistake", &operator()).await.unwrap(), Action::Done);
    assert!(t.places().await.leases.is_empty(), "no lock row is left behind");
    let renewed = t.store.renew(&crate::trial::worker("w1"), &[claim.lease], crate::trial::LEASE).await.unwrap();
    assert!(renewed.is_empty());
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::LeaseLost);
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Cancelled);
    assert_eq!(t.times_announced(Fact::Delivered, id).await, 0);
}

pub async fn p6_what_is_settled_cannot_be_cancelled(t: &Trial) {
    for status in [DeliveryStatus::Delivered, DeliveryStatus::Dead, DeliveryStatus::Cancelled] {
        let id = t.delivery_in(status).await;
        let before = (t.delivery(id).await, t.places().await, t.audit().await.len());
        assert_eq!(cancel(t, id).await, Action::Forbidden(Forbidden::AlreadySettled(status)));
        assert_eq!((t.delivery(id).await, t.places().await, t.audit().await.len()), before);
    }
    assert_eq!(cancel(t, DeliveryId::from_uuid(Uuid::now_v7())).await, Action::NotFound);
}

pub async fn a_cancellation_is_audited_with_its_reason(t: &Trial) {
    let now = t.freeze();
    let id = t.deliver_to("a").await;
    assert_eq!(cancel(t, id).await, Action::Done);
    let audit = t.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].operator.as_str(), audit[0].action.as_str()), ("olga", "delivery.cancel"));
    assert_eq!(audit[0].subject, id.to_string());
    assert_eq!(audit[0].reason.as_deref(), Some("sent by mistake"));
    assert_eq!(audit[0].at, now);
}

pub async fn the_audit_trail_is_listed_newest_first_in_pages(t: &Trial) {
    t.freeze();
    let mut ids = Vec::new();
    for _ in 0..7 {
        t.advance_secs(1);
        let id = t.deliver_to("a").await;
        cancel(t, id).await;
        ids.push(id.to_string());
    }
    ids.reverse();
    let mut listed = Vec::new();
    let mut cursor = None;
    loop {
        let page = t.store.audit(None, &PageRequest::new(3, cursor).unwrap()).await.unwrap();
        assert!(page.items.len() <= 3);
        listed.extend(page.items.into_iter().map(|entry| entry.subject));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, ids);
}
