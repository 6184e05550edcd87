//! How much a dispatcher does at a time, and what one destination can do to the others.

use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::{DeliveryStatus, Dispatcher, EndpointSettings, EndpointStatus, NewEvent, Secret};
use std::sync::Arc;

use super::{Running, all_become, becomes, dispatcher, endpoint_at, enqueue_for, stalling};
use crate::faulty::{Call, FaultyStore, Seen};
use crate::receiver::{Answer, Gate, Hostile, Receiver};
use crate::trial::Trial;
use crate::wait::PATIENCE;

/// A receiver that answers when the gate is opened.
async fn gated(gate: &Gate) -> Receiver {
    let gate = gate.clone();
    Receiver::start(move |_, _| Answer::status(200).after(&gate)).await
}

pub async fn no_more_attempts_are_under_way_than_allowed(t: &Trial) {
    let gate = Gate::new();
    let receivers = [gated(&gate).await, gated(&gate).await, gated(&gate).await];
    let mut ids = Vec::new();
    for receiver in &receivers {
        ids.extend(enqueue_for(t, receiver, 10).await);
    }
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight(7));
    let open = || receivers.iter().map(Receiver::open_requests).sum::<usize>();
    crate::eventually("7 to be under way", PATIENCE, || async { (open() == 7).then_some(()) }).await;
    assert_eq!(t.overview().await.in_flight, 7, "nothing is claimed that has no slot");
    gate.open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    let most: usize = receivers.iter().map(Receiver::most_open_requests).sum();
    assert!(most <= 21 && receivers.iter().all(|receiver| receiver.most_open_requests() <= 7));
    running.stop().await;
}

pub async fn no_more_attempts_go_to_one_destination_than_allowed(t: &Trial) {
    let gate = Gate::new();
    let receiver = gated(&gate).await;
    let ids = enqueue_for(t, &receiver, 12).await;
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight_per_destination(3));
    receiver.wait_until("3 to be under way", PATIENCE, |receiver| receiver.open_requests() == 3).await;
    // A healthy neighbour is served meanwhile, so claims go on, and still no fourth goes out.
    let neighbour = Receiver::answering(200).await;
    let neighbours = enqueue_for(t, &neighbour, 20).await;
    all_become(t, &neighbours, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.request_count(), 3);
    gate.open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.most_open_requests(), 3);
    running.stop().await;
}

pub async fn an_endpoints_own_limit_is_kept(t: &Trial) {
    let gate = Gate::new();
    let receiver = gated(&gate).await;
    let settings = EndpointSettings {
        secrets: vec![Secret::generate()],
        max_in_flight: NonZeroU32::new(2),
        ..EndpointSettings::default()
    };
    endpoint_at(t, &receiver, settings).await;
    let enqueued = t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 9]).await;
    let ids: Vec<_> = enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id).collect();
    let running = Running::start(dispatcher(&t.store, "w1"));
    receiver.wait_until("2 to be under way", PATIENCE, |receiver| receiver.open_requests() == 2).await;
    gate.open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.most_open_requests(), 2);
    running.stop().await;
}

pub async fn an_endpoints_own_limit_is_kept_by_two_dispatchers_together(t: &Trial) {
    let gate = Gate::new();
    let receiver = gated(&gate).await;
    let settings = EndpointSettings {
        secrets: vec![Secret::generate()],
        max_in_flight: NonZeroU32::new(3),
        ..EndpointSettings::default()
    };
    endpoint_at(t, &receiver, settings).await;
    let enqueued = t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 20]).await;
    let ids: Vec<_> = enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id).collect();
    let wires = [FaultyStore::new(Arc::clone(&t.store)), FaultyStore::new(Arc::clone(&t.other))];
    let both: Vec<_> = wires
        .iter()
        .enumerate()
        .map(|(number, wire)| {
            let store = wire.clone() as Arc<dyn postrider::Store>;
            Running::start(dispatcher(&store, &format!("w{number}")))
        })
        .collect();
    receiver.wait_until("3 to be under way", PATIENCE, |receiver| receiver.open_requests() == 3).await;
    // Each has looked for more, again and again, unless the store takes one dispatcher only and has turned it away.
    crate::eventually("both to have looked", PATIENCE, || async {
        let looked = |number: usize| wires[number].rests() > 3 || both[number].has_ended();
        (looked(0) && looked(1)).then_some(())
    })
    .await;
    assert_eq!(receiver.request_count(), 3);
    gate.open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.most_open_requests(), 3);
    let mut delivered = 0;
    for running in both {
        match running.end().await {
            Ok(totals) => delivered += totals.delivered,
            Err(error) => assert_eq!(error.code, postrider::StoreErrorCode::Locked, "{error}"),
        }
    }
    assert_eq!(delivered, 20);
}

pub async fn a_slot_that_others_share_is_used_again_without_a_poll(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let settings = EndpointSettings {
        secrets: vec![Secret::generate()],
        max_in_flight: NonZeroU32::new(3),
        ..EndpointSettings::default()
    };
    endpoint_at(t, &receiver, settings).await;
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 12]).await;
    // Somebody else has two of the three slots, so the dispatcher never sees its own limit reached.
    let theirs: Vec<_> = t.claim("w0", 2).await.iter().map(|claim| claim.lease.delivery_id).collect();
    assert_eq!(theirs.len(), 2);
    let ours = t.deliveries().await.into_iter().map(|delivery| delivery.id).filter(|id| !theirs.contains(id));
    let ours: Vec<_> = ours.collect();
    let running = Running::start(dispatcher(&t.store, "w1").poll_interval(Duration::from_hours(1)));
    all_become(t, &ours, DeliveryStatus::Delivered).await;
    running.stop().await;
}

pub async fn an_endpoints_rate_limit_is_kept_without_polling(t: &Trial) {
    const PER_SECOND: f64 = 20.0;
    let receiver = Receiver::answering(200).await;
    let settings = EndpointSettings {
        secrets: vec![Secret::generate()],
        rate_limit: Some("20/s".parse().unwrap()),
        ..EndpointSettings::default()
    };
    endpoint_at(t, &receiver, settings).await;
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 200]).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn postrider::Store>;
    // With so long a poll, only the promise of the next token can bring out the next delivery.
    let running = Running::start(dispatcher(&store, "w1").poll_interval(Duration::from_hours(1)));
    let requests = receiver.wait_for(60, PATIENCE).await;
    for (number, request) in requests.iter().enumerate() {
        let elapsed = (request.arrived - requests[0].arrived).as_secs_f64();
        // Two at once are its burst. A second is for a first attempt that was held up on a busy machine.
        let most = PER_SECOND.mul_add(elapsed + 1.0, 2.0);
        let number = f64::from(u32::try_from(number).unwrap() + 1);
        assert!(number <= most, "{number} requests within {elapsed:.3} s");
    }
    let claims = wire.seen().iter().filter(|seen| matches!(seen, Seen::Claimed { .. })).count();
    assert!(claims <= receiver.request_count() * 5 + 50, "{claims} claims: it waits for the tokens, it does not spin");
    running.stop().await;
}

pub async fn a_slot_that_comes_free_during_a_claim_is_used_without_a_poll(t: &Trial) {
    let gates = [Gate::new(), Gate::new()];
    let held = gates.clone();
    let receiver = Receiver::start(move |_, number| match number {
        first @ 1..=2 => Answer::status(200).after(&held[first - 1]),
        _ => Answer::status(200),
    })
    .await;
    let ids = enqueue_for(t, &receiver, 6).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn postrider::Store>;
    let builder = dispatcher(&store, "w1").poll_interval(Duration::from_hours(1));
    let running = Running::start(builder.max_in_flight_per_destination(2));
    receiver.wait_until("2 to be under way", PATIENCE, |receiver| receiver.open_requests() == 2).await;
    // The claim for the first free slot takes effect, and before it is answered the second slot comes free.
    wire.delay_answers(Call::Claim, Duration::from_secs(1), 1);
    gates[0].open();
    crate::eventually("the claim to take effect", PATIENCE, || async { (t.overview().await.due <= 3).then_some(()) })
        .await;
    gates[1].open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    running.stop().await;
}

pub async fn a_claim_asks_for_no_more_than_there_is_room_for(t: &Trial) {
    const SLOTS: usize = 8;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let receiver = Receiver::answering(200).await;
    let ids = enqueue_for(t, &receiver, 100).await;
    let store = wire.clone() as Arc<dyn postrider::Store>;
    let running = Running::start(dispatcher(&store, "w1").max_in_flight(8));
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    running.stop().await;
    let mut held = 0;
    for seen in wire.seen() {
        match seen {
            Seen::Claimed { limit, leases } => {
                // An attempt has a slot while it is under way, which the receivers of other cases see. Its lease is held until
                // it is settled: as many again may wait for that, and as many may be in line.
                let most = (2 * SLOTS).min(3 * SLOTS - held);
                assert!(limit > 0, "asked for nothing");
                assert!(limit as usize <= most, "asked for {limit} while {held} leases were held for {SLOTS} slots");
                held += leases.len();
            }
            Seen::Settled(leases) => held -= leases.len(),
            Seen::Renewing(_) | Seen::Refused(_) => {}
        }
    }
    assert_eq!(held, 0);
}

pub async fn what_is_in_line_for_a_destination_that_stalls_is_given_back(t: &Trial) {
    const QUICK: usize = 1000;
    const SLOTS: usize = 4;
    let gate = Gate::new();
    let receiver = stalling(QUICK, &gate).await;
    let ids = enqueue_for(t, &receiver, 1500).await;
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight_per_destination(4));
    let stalled = |receiver: &Receiver| receiver.open_requests() == SLOTS && receiver.request_count() == QUICK + SLOTS;
    receiver.wait_until("it to stall", PATIENCE, stalled).await;
    crate::eventually("the others to be given back", PATIENCE, || async {
        let overview = t.overview().await;
        (overview.in_flight == SLOTS as u64 && overview.due == 496).then_some(())
    })
    .await;
    assert_eq!(receiver.request_count(), QUICK + SLOTS, "nothing more has gone out meanwhile");
    gate.open();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    assert_eq!((receiver.request_count(), receiver.most_open_requests()), (1500, SLOTS));
    for id in [ids[QUICK + SLOTS], ids[1499]] {
        let delivery = t.delivery(id).await;
        assert_eq!((delivery.attempt_count, delivery.abandoned_count), (1, 0), "it was given back uncharged");
    }
    let totals = running.stop().await;
    assert!(totals.released > 0, "it had claimed ahead while the destination was quick: {totals:?}");
    assert_eq!(totals.claimed, 1500 + totals.released);
}

pub async fn p15_a_black_hole_does_not_hold_up_the_others(t: &Trial) {
    let black_hole = Hostile::black_hole().await;
    let event = NewEvent::new("invoice.paid", "{}").to(black_hole.url());
    t.enqueue_all(vec![event; 200]).await;
    let builder = dispatcher(&t.store, "w1").max_in_flight(16).max_in_flight_per_destination(4);
    // Attempts at the black hole would take their whole timeout, and nobody needs to wait for them in the end.
    let running = Running::start(builder.drain_timeout(Duration::ZERO));
    let mut healthy = Vec::new();
    for _ in 0..5 {
        healthy.push(Receiver::answering(200).await);
    }
    for receiver in &healthy {
        let ids = enqueue_for(t, receiver, 20).await;
        all_become(t, &ids, DeliveryStatus::Delivered).await;
    }
    let overview = t.overview().await;
    assert_eq!(overview.delivered, 100);
    assert_eq!((overview.pending, overview.in_flight), (200, 4), "the black hole holds its own slots and no other");
    assert_eq!(running.stop().await.released, 4);
}

pub async fn a_paused_endpoint_keeps_its_backlog_until_it_is_resumed(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let secrets = vec![Secret::generate()];
    let endpoint = endpoint_at(t, &receiver, EndpointSettings { secrets, ..EndpointSettings::default() }).await;
    t.set_endpoint(endpoint.id, EndpointStatus::Paused).await;
    let waiting = t.enqueue(NewEvent::new("invoice.paid", "{}")).await.deliveries()[0].id;
    let running = Running::start(dispatcher(&t.store, "w1"));
    let neighbour = Receiver::answering(200).await;
    let other = enqueue_for(t, &neighbour, 1).await[0];
    becomes(t, other, DeliveryStatus::Delivered).await;
    assert_eq!(t.delivery(waiting).await.status, DeliveryStatus::Pending);
    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    becomes(t, waiting, DeliveryStatus::Delivered).await;
    running.stop().await;
}

pub async fn lanes_that_may_give_nothing_do_not_keep_a_dispatcher_busy(t: &Trial) {
    // More of them than one claim looks at.
    const LANES: usize = 600;
    let receiver = Receiver::answering(200).await;
    let secrets = vec![Secret::generate()];
    let settings = EndpointSettings { secrets, ..EndpointSettings::default() };
    let endpoints = join_all((0..LANES).map(|_| endpoint_at(t, &receiver, settings.clone()))).await;
    join_all(endpoints.iter().map(|endpoint| t.set_endpoint(endpoint.id, EndpointStatus::Paused))).await;
    let waiting = t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
    assert_eq!(waiting.deliveries().len(), LANES);
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn postrider::Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    crate::eventually("a rest", PATIENCE, || async { (wire.rests() > 0).then_some(()) }).await;
    // It is awake for what can be sent, wherever in the round that is.
    for endpoint in [&endpoints[0], &endpoints[LANES - 1]] {
        t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
        let sent = waiting.deliveries().iter().find(|delivery| delivery.endpoint_id == Some(endpoint.id)).unwrap();
        becomes(t, sent.id, DeliveryStatus::Delivered).await;
    }
    running.stop().await;
}

pub async fn a_dispatcher_that_is_disabled_delivers_nothing_and_enqueueing_works(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let disabled = Running::start(dispatcher(&t.store, "w1").enabled(false));
    let id = enqueue_for(t, &receiver, 1).await[0];
    let totals = disabled.stop().await;
    assert_eq!((totals.claimed, receiver.request_count()), (0, 0));
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Pending);
    let enabled = Running::start(dispatcher(&t.store, "w1"));
    becomes(t, id, DeliveryStatus::Delivered).await;
    enabled.stop().await;
}

pub async fn settings_that_cannot_hold_are_refused_by_name(t: &Trial) {
    let builder = || Dispatcher::builder(Arc::clone(&t.store));
    let zero = Duration::ZERO;
    for (name, built) in [
        ("lease", builder().lease(Duration::from_millis(100)).build()),
        ("poll_interval", builder().poll_interval(zero).build()),
        ("timeout", builder().timeout(zero).build()),
        ("connect_timeout", builder().connect_timeout(zero).build()),
        ("max_in_flight", builder().max_in_flight(0).build()),
        ("max_in_flight_per_destination", builder().max_in_flight_per_destination(0).build()),
        ("max_abandoned", builder().max_abandoned(0).build()),
        ("kept_response_bytes", builder().kept_response_bytes(usize::MAX).build()),
        ("drain_timeout", builder().drain_timeout(Duration::from_hours(25)).build()),
        ("disable_after", builder().disable_after(Some(Duration::from_millis(999))).build()),
        ("retention", builder().retention(Some(Duration::from_secs(59))).build()),
        ("retention", builder().retention(Some(Duration::MAX)).build()),
    ] {
        let error = built.unwrap_err().to_string();
        assert!(error.starts_with(name), "{name}: {error}");
    }
    builder().build().unwrap();
}
