//! Once-only claims: of all who would tell of a subject, one does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::{
    EnqueueError, Enqueued, EventId, NewEvent, OnceClaim, OnceCursor, OnceFilter, OnceWinner, PageRequest, Verdict,
};
use tokio::sync::Barrier;

use crate::subject::Ending;
use crate::trial::{Trial, event_to, operator};

const DAY: Duration = Duration::from_hours(24);

fn telling(subject: &str) -> NewEvent {
    event_to("a").once(subject)
}

fn is_new(enqueued: &Enqueued) -> bool {
    matches!(enqueued, Enqueued::New { .. })
}

async fn claims(t: &Trial, event: NewEvent) -> EventId {
    let enqueued = t.enqueue(event).await;
    assert!(is_new(&enqueued) && enqueued.deliveries().len() == 1, "{enqueued:?}");
    enqueued.event_id().unwrap()
}

async fn reset(t: &Trial, subject: &str) -> u64 {
    t.store.reset_once("default", subject, &operator()).await.unwrap()
}

fn lost_to(winner: EventId) -> Enqueued {
    Enqueued::NotClaimed { generation: 1, winner: Some(winner) }
}

pub async fn the_first_to_tell_of_a_subject_wins_and_is_shown(t: &Trial) {
    let now = t.freeze();
    assert_eq!(t.store.once("default", "plan/123").await.unwrap(), None);
    let event_id = claims(t, telling("plan/123")).await;
    t.advance_secs(5);
    let shown = OnceClaim {
        tenant: "default".to_owned(),
        subject: "plan/123".to_owned(),
        generation: 1,
        winner: Some(OnceWinner { event_id, event_type: "invoice.paid".to_owned(), claimed_at: now }),
    };
    for store in [&t.store, &t.other] {
        assert_eq!(store.once("default", "plan/123").await.unwrap(), Some(shown.clone()));
        assert_eq!(store.once("acme", "plan/123").await.unwrap(), None, "p21: that one is nobody's");
    }
}

pub async fn p10_whoever_comes_later_writes_nothing_its_key_included(t: &Trial) {
    let winner = claims(t, telling("s").idempotency_key("k1")).await;
    let before = t.places().await;
    for store in [&t.store, &t.other] {
        let lost = store.enqueue(vec![telling("s").idempotency_key("k2")]).await.unwrap();
        assert_eq!(lost, [lost_to(winner)]);
    }
    assert_eq!(t.places().await, before);
    assert_eq!(reset(t, "s").await, 2);
    claims(t, telling("s").idempotency_key("k2")).await;
}

pub async fn p10_of_fifty_racers_on_two_handles_one_wins(t: &Trial) {
    let barrier = Arc::new(Barrier::new(50));
    let racers: Vec<_> = (0..50)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                let event = NewEvent { event_type: format!("plan.step_{number}"), ..telling("plan/123") };
                if number % 3 == 0 {
                    return store.enqueue_each(vec![event]).await.unwrap().remove(0).unwrap();
                }
                store.enqueue(vec![event]).await.expect("to lose is no error").remove(0)
            })
        })
        .collect();
    let results: Vec<Enqueued> = join_all(racers).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<_> = results.iter().filter(|result| is_new(result)).collect();
    assert_eq!(winners.len(), 1, "exactly one");
    let winner = winners[0].event_id().unwrap();
    let lost = results.iter().filter(|result| **result == lost_to(winner)).count();
    assert_eq!(lost, 49, "everyone else is told of the winner: {results:?}");
    let places = t.places().await;
    assert_eq!((places.events, places.deliveries, places.ready.len()), (1, 1, 1));
    let shown = t.store.once("default", "plan/123").await.unwrap().unwrap();
    assert_eq!(shown.winner.unwrap().event_id, winner);
}

pub async fn p10_racers_that_roll_back_leave_the_claim_to_another(t: &Trial) {
    let racers = (0..24).map(|number| async move {
        let ending = if number % 2 == 0 { Ending::Rollback } else { Ending::Commit };
        let enqueued = t.subject().enqueue_in_transaction(vec![telling("s")], ending).await.unwrap().remove(0);
        (ending, enqueued)
    });
    let results = join_all(racers).await;
    let won = |wanted| results.iter().filter(|(ending, enqueued)| *ending == wanted && is_new(enqueued)).count();
    assert_eq!(won(Ending::Commit), 1, "{results:?}");
    let winner = results.iter().find(|(ending, enqueued)| *ending == Ending::Commit && is_new(enqueued)).unwrap();
    let shown = t.store.once("default", "s").await.unwrap().unwrap();
    assert_eq!(shown.winner.unwrap().event_id, winner.1.event_id().unwrap());
    assert_eq!(t.places().await.events, 1);
}

pub async fn p10_a_claim_that_is_rolled_back_was_never_made(t: &Trial) {
    let before = t.places().await;
    let undone = t.subject().enqueue_in_transaction(vec![telling("s")], Ending::Rollback).await.unwrap();
    assert!(is_new(&undone[0]), "inside its transaction it had won: {undone:?}");
    assert_eq!(t.store.once("default", "s").await.unwrap(), None);
    assert_eq!(t.places().await, before);
    let kept = t.subject().enqueue_in_transaction(vec![telling("s")], Ending::Commit).await.unwrap();
    assert!(is_new(&kept[0]));
    assert_eq!(t.enqueue(telling("s")).await, lost_to(kept[0].event_id().unwrap()));
}

pub async fn a_refused_event_claims_nothing(t: &Trial) {
    let refused = telling("s").idempotency_key("k1").to("ftp://a.example.com/");
    assert!(matches!(t.store.enqueue(vec![refused]).await, Err(EnqueueError::Refused(_))));
    let batch = vec![telling("s"), NewEvent::new("", "{}")];
    assert!(t.store.enqueue(batch).await.is_err());
    assert_eq!(t.store.once("default", "s").await.unwrap(), None);
    claims(t, telling("s")).await;
}

pub async fn p10_a_reset_begins_a_generation_with_one_winner_of_its_own(t: &Trial) {
    t.freeze();
    let first = claims(t, telling("s")).await;
    let now = t.advance_secs(3);
    assert_eq!(reset(t, "s").await, 2);
    let open = t.other.once("default", "s").await.unwrap().unwrap();
    assert_eq!((open.generation, open.winner), (2, None));
    let second = claims(t, telling("s")).await;
    assert_ne!(first, second);
    assert_eq!(t.enqueue(telling("s")).await, Enqueued::NotClaimed { generation: 2, winner: Some(second) });
    let shown = t.store.once("default", "s").await.unwrap().unwrap();
    assert_eq!((shown.generation, shown.winner.unwrap().event_id), (2, second));
    assert!(t.store.event(first).await.unwrap().is_some(), "what was told before stays told");

    let audit = t.audit().await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].action.as_str(), audit[0].subject.as_str()), ("once.reset", "s"));
    assert_eq!((audit[0].operator.as_str(), audit[0].tenant.as_deref()), ("olga", Some("default")));
    assert_eq!(audit[0].at, now);
}

pub async fn a_subject_that_nobody_has_claimed_can_be_reset(t: &Trial) {
    assert_eq!(reset(t, "s").await, 2);
    assert_eq!(reset(t, "s").await, 3);
    let shown = t.store.once("default", "s").await.unwrap().unwrap();
    assert_eq!((shown.generation, shown.winner), (3, None));
    claims(t, telling("s")).await;
    assert_eq!(t.store.once("default", "s").await.unwrap().unwrap().generation, 3);
}

pub async fn resets_at_once_begin_one_generation_each(t: &Trial) {
    claims(t, telling("s")).await;
    let resets = (0..8).map(|number| {
        let store = if number % 2 == 0 { &t.store } else { &t.other };
        async move { store.reset_once("default", "s", &operator()).await.unwrap() }
    });
    let mut generations = join_all(resets).await;
    generations.sort_unstable();
    assert_eq!(generations, [2, 3, 4, 5, 6, 7, 8, 9]);
}

pub async fn a_straggler_of_an_older_generation_gets_nothing(t: &Trial) {
    claims(t, event_to("a").once_in("s", 1)).await;
    reset(t, "s").await;
    let late = t.enqueue(event_to("a").once_in("s", 1)).await;
    assert_eq!(late, Enqueued::NotClaimed { generation: 2, winner: None });
    assert_eq!(t.store.once("default", "s").await.unwrap().unwrap().winner, None, "it has not taken the new one");
    let winner = claims(t, event_to("a").once_in("s", 2)).await;
    let late = t.enqueue(event_to("a").once_in("s", 1)).await;
    assert_eq!(late, Enqueued::NotClaimed { generation: 2, winner: Some(winner) });
}

pub async fn a_generation_that_has_not_begun_cannot_be_claimed(t: &Trial) {
    let early = t.enqueue(event_to("a").once_in("s", 2)).await;
    assert_eq!(early, Enqueued::NotClaimed { generation: 1, winner: None });
    assert_eq!(t.places().await.events, 0);
    claims(t, event_to("a").once_in("s", 1)).await;
    let early = t.enqueue(event_to("a").once_in("s", 2)).await;
    assert!(matches!(early, Enqueued::NotClaimed { generation: 1, winner: Some(_) }), "{early:?}");
}

pub async fn events_of_different_types_exclude_each_other(t: &Trial) {
    let winner = claims(t, NewEvent { event_type: "plan.finished".to_owned(), ..telling("plan/123") }).await;
    let other = NewEvent { event_type: "plan.failed".to_owned(), ..telling("plan/123") };
    assert_eq!(t.enqueue(other).await, lost_to(winner));
}

pub async fn p21_tenants_do_not_exclude_each_other(t: &Trial) {
    let ours = claims(t, telling("s")).await;
    let theirs = claims(t, telling("s").tenant("acme")).await;
    assert_ne!(ours, theirs);
    assert_eq!(t.store.reset_once("acme", "s", &operator()).await.unwrap(), 2);
    assert_eq!(t.store.once("default", "s").await.unwrap().unwrap().generation, 1);
    assert_eq!(t.enqueue(telling("s")).await, lost_to(ours));
}

pub async fn subjects_are_told_apart_to_the_letter(t: &Trial) {
    for subject in ["plan/1", "plan/12", "Plan/1", "plan/1 2", "plan/%", "plan/_"] {
        claims(t, telling(subject)).await;
    }
}

pub async fn within_one_list_the_first_wins_and_the_others_are_written(t: &Trial) {
    let events = vec![event_to("b"), telling("s"), telling("s"), telling("r"), event_to("b"), telling("s")];
    let results = t.enqueue_all(events).await;
    let winner = results[1].event_id().unwrap();
    assert_eq!(results.iter().map(is_new).collect::<Vec<_>>(), [true, true, false, true, true, false]);
    assert_eq!((&results[2], &results[5]), (&lost_to(winner), &lost_to(winner)));
    assert_eq!(t.places().await.events, 4);
}

pub async fn lists_that_claim_subjects_in_opposite_orders_all_succeed(t: &Trial) {
    let subjects: Vec<String> = (0..8).map(|number| format!("s{number}")).collect();
    let lists = (0..8).map(|number| {
        let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
        let mut events: Vec<_> = subjects.iter().map(|subject| telling(subject)).collect();
        if number % 2 == 0 {
            events.reverse();
        }
        tokio::spawn(async move { store.enqueue(events).await.expect("no list is lost to a deadlock") })
    });
    let results: Vec<_> = join_all(lists).await.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(results.iter().filter(|result| is_new(result)).count(), subjects.len());
}

pub async fn the_winner_sent_again_under_its_key_is_a_duplicate(t: &Trial) {
    let event = telling("s").idempotency_key("k1");
    let winner = claims(t, event.clone()).await;
    assert_eq!(t.enqueue(event.clone()).await, Enqueued::Duplicate { event_id: winner });
    reset(t, "s").await;
    assert_eq!(t.enqueue(event).await, Enqueued::Duplicate { event_id: winner }, "a key is older than a claim");
    assert_eq!(t.store.once("default", "s").await.unwrap().unwrap().winner, None);
    let other = t.store.enqueue(vec![telling("r").idempotency_key("k1")]).await;
    assert!(matches!(other, Err(EnqueueError::IdempotencyConflict { .. })), "the subject is part of the content");
}

pub async fn a_claim_outlives_its_event(t: &Trial) {
    t.freeze();
    let first = claims(t, telling("s")).await;
    reset(t, "s").await;
    let second = claims(t, telling("s")).await;
    let third = claims(t, telling("r")).await;
    t.claim_and_settle(Verdict::Delivered).await;
    t.advance(DAY * 2);
    while t.store.retain(DAY, None, 100).await.unwrap().next.is_some() {}
    for event in [first, second, third] {
        assert_eq!(t.store.event(event).await.unwrap(), None);
    }
    assert_eq!(t.enqueue(telling("s")).await, Enqueued::NotClaimed { generation: 2, winner: Some(second) });
    assert_eq!(t.enqueue(event_to("a").once_in("s", 1)).await.event_id(), Some(second));
    assert_eq!(t.enqueue(telling("r")).await, lost_to(third));
    let shown = t.store.once("default", "s").await.unwrap().unwrap();
    assert_eq!((shown.generation, shown.winner.unwrap().event_id), (2, second));
}

/// The tenants and subjects of every page, and how many pages there were.
async fn listed(t: &Trial, tenant: Option<&str>, prefix: Option<&str>, looked_at: u32) -> (Vec<OnceClaim>, usize) {
    let filter = OnceFilter { tenant: tenant.map(str::to_owned), prefix: prefix.map(str::to_owned) };
    let page = PageRequest::new(2, None).unwrap().looking_at(looked_at);
    let (mut all, mut pages, mut after) = (Vec::new(), 0, None::<OnceCursor>);
    loop {
        let found = t.store.once_claims(&filter, after.as_ref(), &page).await.unwrap();
        assert!(found.items.len() <= 2, "a page keeps its limit");
        all.extend(found.items);
        pages += 1;
        // As it goes over the wire.
        after = found.next.map(|cursor| cursor.to_string().parse().unwrap());
        if after.is_none() {
            return (all, pages);
        }
    }
}

fn subjects(claims: &[OnceClaim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.subject.as_str()).collect()
}

pub async fn subjects_are_listed_by_name_page_by_page(t: &Trial) {
    assert_eq!(listed(t, Some("default"), None, 100).await, (Vec::new(), 1));
    for subject in ["plan/2", "plan/1", "order/9", "plan", "plans/1", "plan/3"] {
        claims(t, telling(subject)).await;
    }
    claims(t, telling("plan/1").tenant("acme")).await;
    for _ in 0..3 {
        reset(t, "plan/2").await;
    }
    reset(t, "order/nobody").await;

    let (all, pages) = listed(t, Some("default"), None, 100).await;
    let mut sorted = subjects(&all);
    sorted.sort_unstable();
    assert_eq!(sorted, ["order/9", "order/nobody", "plan", "plan/1", "plan/2", "plan/3", "plans/1"]);
    assert!(pages <= 4, "{pages} pages of two");
    for claim in &all {
        assert_eq!(
            t.store.once("default", &claim.subject).await.unwrap().as_ref(),
            Some(claim),
            "the current generation"
        );
    }
    for (prefix, expected) in [
        ("plan/", vec!["plan/1", "plan/2", "plan/3"]),
        ("plan", vec!["plan", "plan/1", "plan/2", "plan/3", "plans/1"]),
        ("plan/3", vec!["plan/3"]),
        ("PLAN", Vec::new()),
        ("plan/%", Vec::new()),
        ("zebra", Vec::new()),
    ] {
        let (found, _) = listed(t, Some("default"), Some(prefix), 100).await;
        let mut found = subjects(&found);
        found.sort_unstable();
        assert_eq!(found, expected, "{prefix}");
    }
    let (found, _) = listed(t, None, Some("plan/1"), 100).await;
    let whose: Vec<_> = found.iter().map(|claim| claim.tenant.as_str()).collect();
    assert_eq!(whose, ["acme", "default"], "of every tenant, by tenant");
    assert_eq!(listed(t, None, None, 100).await.0.len(), 8);
    assert_eq!(subjects(&listed(t, Some("acme"), None, 100).await.0), ["plan/1"], "p21: and nobody else's");
}

pub async fn a_list_of_subjects_looks_at_no_more_than_it_may(t: &Trial) {
    for number in 0..9 {
        claims(t, telling(&format!("a/{number}"))).await;
    }
    claims(t, telling("b/1").tenant("acme")).await;
    claims(t, telling("b/1").tenant("zeta")).await;
    let (found, pages) = listed(t, None, Some("b/"), 3).await;
    assert_eq!(subjects(&found), ["b/1", "b/1"]);
    assert!((4..=5).contains(&pages), "eleven, three at a time: {pages}");
    assert_eq!(listed(t, Some("default"), None, 3).await.0.len(), 9);
}
