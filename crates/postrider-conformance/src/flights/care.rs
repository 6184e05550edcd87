//! What a dispatcher does besides delivering: it looks after endpoints that fail or cannot be read, signs with what a
//! rotation left, and tidies up.

use std::sync::Arc;
use std::time::Duration;

use postrider::store::{EndpointChange, Operator, Settlement};
use postrider::{
    DeliveryStatus, Endpoint, EndpointSettings, EndpointStatus, Fact, Keyring, NewEvent, Secret, SecretKey,
    SignatureScheme, Store, StoreErrorCode,
};

use super::{Running, all_become, becomes, dispatcher, endpoint_at, enqueue_for};
use crate::faulty::{Call, Fault, FaultyStore, Seen};
use crate::logs::Logs;
use crate::receiver::{Received, Receiver};
use crate::trial::{Trial, operator, retry_after};
use crate::wait::{PATIENCE, eventually};

const DAY: Duration = Duration::from_hours(24);

fn signed() -> EndpointSettings {
    EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() }
}

fn paid() -> NewEvent {
    NewEvent::new("invoice.paid", "{}")
}

async fn now_is(t: &Trial, endpoint: &Endpoint) -> Endpoint {
    t.store.endpoint(endpoint.id).await.unwrap().unwrap()
}

pub async fn an_endpoint_that_fails_for_too_long_is_disabled(t: &Trial) {
    t.freeze();
    let receiver = Receiver::answering(500).await;
    let endpoint = endpoint_at(t, &receiver, signed()).await;
    let id = t.enqueue(paid()).await.deliveries()[0].id;
    let running = Running::start(dispatcher(&t.store, "w1").disable_after(Some(Duration::from_hours(1))));
    becomes(t, id, DeliveryStatus::Failed).await;
    assert_eq!(now_is(t, &endpoint).await.status, EndpointStatus::Active, "one failure is no long time");
    t.advance(Duration::from_hours(2));
    receiver.wait_for(2, PATIENCE).await;
    eventually("the endpoint to be disabled", PATIENCE, async || {
        (now_is(t, &endpoint).await.status == EndpointStatus::Disabled).then_some(())
    })
    .await;
    assert_eq!(t.times_announced(Fact::EndpointDisabled, id).await, 1);
    running.stop().await;
}

pub async fn an_endpoint_that_cannot_be_read_is_set_aside_and_holds_up_nobody(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let (unreadable, healthy) = (Receiver::answering(200).await, Receiver::answering(200).await);
    let broken = endpoint_at(t, &unreadable, signed()).await;
    endpoint_at(t, &healthy, signed()).await;
    t.subject().overwrite_settings(broken.id, r#"{"secrets":["#).await;
    let enqueued = t.enqueue_all(vec![paid(); 20]).await;
    let (waiting, sent): (Vec<_>, Vec<_>) = enqueued
        .iter()
        .flat_map(postrider::Enqueued::deliveries)
        .partition(|delivery| delivery.endpoint_id == Some(broken.id));
    let sent: Vec<_> = sent.iter().map(|delivery| delivery.id).collect();

    let wire = FaultyStore::new(Arc::clone(&t.store));
    // A store that fails is left alone for a while, not asked for the same deliveries again and again.
    wire.inject(Call::SetEndpoint, Fault::Refuse(StoreErrorCode::Unavailable), 3);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    all_become(t, &sent, DeliveryStatus::Delivered).await;
    eventually("the endpoint to be disabled, and its claims to be given back", PATIENCE, async || {
        let overview = t.overview().await;
        (now_is(t, &broken).await.status == EndpointStatus::Disabled && overview.in_flight == 0).then_some(())
    })
    .await;
    let disabled = now_is(t, &broken).await;
    assert!(disabled.status_reason.unwrap().contains("settings_damaged"), "it says why");
    assert_eq!(logs.lines_with(&["endpoint_unreadable", &broken.id.to_string()]).len(), 1, "{}", logs.text());
    let audit: Vec<_> = t.audit().await.into_iter().filter(|entry| entry.action == "endpoint.disable").collect();
    assert_eq!(audit.iter().map(|entry| entry.operator.as_str()).collect::<Vec<_>>(), ["postrider"], "once");
    assert_eq!(unreadable.request_count(), 0, "nothing was sent");
    for delivery in &waiting {
        let delivery = t.delivery(delivery.id).await;
        assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Pending, 0));
        assert_eq!(delivery.abandoned_count, 0, "nothing was charged");
    }
    let claimed: usize =
        wire.seen().iter().map(|seen| if let Seen::Claimed { leases, .. } = seen { leases.len() } else { 0 }).sum();
    assert!(claimed <= 4 * 40, "each was claimed a few times at most, not {claimed} in all");

    let mut mended = now_is(t, &broken).await;
    mended.settings = signed();
    t.store.replace_endpoint(&mended, EndpointChange::RotateSecret, &operator()).await.unwrap().unwrap();
    t.set_endpoint(broken.id, EndpointStatus::Active).await;
    let waiting: Vec<_> = waiting.iter().map(|delivery| delivery.id).collect();
    all_become(t, &waiting, DeliveryStatus::Delivered).await;
    running.stop().await;
}

pub async fn a_dispatcher_without_an_endpoints_key_leaves_it_to_those_who_have_it(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let (foreign, healthy) = (Receiver::answering(200).await, Receiver::answering(200).await);
    let closed = endpoint_at(t, &foreign, signed()).await;
    endpoint_at(t, &healthy, signed()).await;
    let stranger = Keyring::new([SecretKey::generate()]);
    let sealed = closed.settings.to_stored(&stranger, &closed.tenant).unwrap();
    t.subject().overwrite_settings(closed.id, &sealed).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let running = Running::start(dispatcher(&(wire.clone() as Arc<dyn Store>), "w1"));
    for _ in 0..5 {
        let enqueued = t.enqueue(paid()).await;
        let open = enqueued.deliveries().iter().find(|delivery| delivery.endpoint_id != Some(closed.id)).unwrap();
        becomes(t, open.id, DeliveryStatus::Delivered).await;
    }
    eventually("its claims to be given back", PATIENCE, async || (t.overview().await.in_flight == 0).then_some(()))
        .await;
    let shown = now_is(t, &closed).await;
    assert_eq!((shown.status, foreign.request_count()), (EndpointStatus::Active, 0), "nothing sent, nothing disabled");
    assert_eq!(logs.lines_with(&["endpoint_left_alone", &closed.id.to_string()]).len(), 1, "{}", logs.text());
    let claimed: usize =
        wire.seen().iter().map(|seen| if let Seen::Claimed { leases, .. } = seen { leases.len() } else { 0 }).sum();
    assert!(claimed <= 5 + 5 * 2, "it is not claimed again and again: {claimed} claims");
    running.stop().await;
}

pub async fn a_rotated_secret_signs_with_both_and_then_only_with_the_new_one(t: &Trial) {
    let now = t.freeze();
    let receiver = Receiver::answering(200).await;
    let (old, new) = (Secret::generate(), Secret::generate());
    let settings = EndpointSettings { secrets: vec![old.clone()], ..EndpointSettings::default() };
    let endpoint = endpoint_at(t, &receiver, settings).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    let send = async |number: usize| {
        t.enqueue(paid()).await;
        receiver.wait_for(number, PATIENCE).await.remove(number - 1)
    };
    let signs = |secret: &Secret, request: &Received| {
        let (secrets, patience) = (std::slice::from_ref(secret), Duration::from_secs(600));
        let seconds = now.as_second();
        SignatureScheme::Standard.verify_headers(secrets, &request.headers, &request.body, seconds, patience).is_ok()
    };
    let count = |request: &Received| request.header("webhook-signature").split(' ').count();

    let before = send(1).await;
    assert!(signs(&old, &before) && !signs(&new, &before));
    let mut rotated = now_is(t, &endpoint).await;
    rotated.settings.rotate(new.clone(), now, now + Duration::from_secs(60));
    let rotated = t.store.replace_endpoint(&rotated, EndpointChange::RotateSecret, &operator()).await.unwrap();
    assert!(rotated.is_some());
    let meanwhile = send(2).await;
    assert!(signs(&old, &meanwhile) && signs(&new, &meanwhile) && count(&meanwhile) == 2);
    t.advance_secs(61);
    // A claim that was under way while the clock was moved took its time from before.
    let is_late = |request: &Received| {
        request.header("webhook-timestamp").parse::<i64>().is_ok_and(|at| at >= now.as_second() + 60)
    };
    let mut after = send(3).await;
    for number in 4..10 {
        if is_late(&after) {
            break;
        }
        after = send(number).await;
    }
    assert!(!signs(&old, &after) && signs(&new, &after) && count(&after) == 1);
    running.stop().await;
}

pub async fn what_is_old_is_removed_beside_the_deliveries(t: &Trial) {
    t.freeze();
    let receiver = Receiver::answering(200).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    let old = enqueue_for(t, &receiver, 450).await;
    all_become(t, &old, DeliveryStatus::Delivered).await;
    running.stop().await;
    t.advance(DAY * 2);
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.inject(Call::Retain, Fault::Refuse(StoreErrorCode::Busy), 2);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w2").retention(Some(DAY)));
    let mut young = 0;
    eventually("what is old to be gone", PATIENCE, async || {
        let ids = enqueue_for(t, &receiver, 3).await;
        all_become(t, &ids, DeliveryStatus::Delivered).await;
        young += 3;
        (t.places().await.events == young).then_some(())
    })
    .await;
    for id in &old {
        assert_eq!(t.store.delivery(*id).await.unwrap(), None);
    }
    let totals = running.stop().await;
    assert_eq!((totals.removed_events, totals.errors), (450, 2));
}

pub async fn what_is_left_of_a_removed_endpoint_is_cancelled_also_where_everything_is_kept(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let endpoint = endpoint_at(t, &receiver, signed()).await;
    let id = t.enqueue(paid()).await.deliveries()[0].id;
    let claim = t.claim_one("w0").await;
    assert!(t.store.remove_endpoint(endpoint.id, &Operator("olga".to_owned())).await.unwrap());
    assert_eq!(t.settle("w0", claim.lease, retry_after(3600)).await, Settlement::Applied);
    let kept = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1").retention(None));
    becomes(t, id, DeliveryStatus::Cancelled).await;
    becomes(t, kept, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    assert_eq!((totals.removed_events, t.places().await.events), (0, 2));
}

pub async fn a_stop_does_not_wait_for_the_tidier(t: &Trial) {
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.inject(Call::Retain, Fault::Hang, 1);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1").retention(Some(DAY)));
    eventually("the tidier to hang", PATIENCE, async || (wire.remaining(Call::Retain) == 0).then_some(())).await;
    running.stop().await;
}

/// Set in the process that really runs the case below.
const FEW_DESCRIPTORS: &str = "POSTRIDER_FEW_DESCRIPTORS";

pub async fn p26_without_descriptors_nothing_is_charged_and_everything_goes_on(t: &Trial) {
    if std::env::var_os(FEW_DESCRIPTORS).is_some() {
        return deliver_without_descriptors(t).await;
    }
    // The limit is a process's, and this one runs other cases as well.
    let program = std::env::current_exe().unwrap();
    let case = "p26_without_descriptors_nothing_is_charged_and_everything_goes_on";
    let child = tokio::task::spawn_blocking(move || {
        let command = r#"ulimit -n 160 && exec "$0" "$1" --nocapture"#;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command]).arg(program).arg(case).env(FEW_DESCRIPTORS, "1").output().unwrap()
    });
    let output = child.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

async fn deliver_without_descriptors(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let now = t.freeze();
    let receiver = Receiver::answering(200).await;
    let event = super::event_for(&receiver).deliver_at(now + Duration::from_secs(60));
    let id = t.enqueue(event).await.deliveries()[0].id;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    // Whatever the store needs, it has by then.
    eventually("some rests", PATIENCE, async || (wire.rests() > 5).then_some(())).await;
    let mut hoard = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        hoard.push(file);
    }
    t.advance_secs(60);
    eventually("the lack to be told", PATIENCE, async || {
        (!logs.lines_with(&["ERROR", "descriptors_exhausted"]).is_empty()).then_some(())
    })
    .await;
    drop(hoard);
    becomes(t, id, DeliveryStatus::Delivered).await;
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.attempt_count, delivery.abandoned_count), (1, 0), "it was not held against the receiver");
    assert_eq!((t.attempts(id).await.len(), receiver.request_count()), (1, 1));
    let totals = running.stop().await;
    assert!(totals.released >= 1 && totals.network_failures == 0, "{totals:?}");
}
