//! The process ends at a named place, and the next one goes on.

use postrider_promises::checker::Verdict;
use postrider_promises::fleet::{Arena, Role, Start, terms};
use postrider_promises::inbox::{Inbox, Reply};

use crate::{enqueue, must_hold};

const EVENTS: usize = 60;

/// Every third event fails at first, so that there are settles of each kind.
async fn inbox() -> Inbox {
    Inbox::open(|number, attempt| Reply::status(if number.is_multiple_of(3) && attempt == 1 { 500 } else { 200 })).await
}

/// Ends a dispatcher at a place, has the next one do the rest, and returns what it came to.
async fn ends_at(arena: Arena, place: &str, when: &str) -> Verdict {
    enqueue(&arena, EVENTS).await;
    // Few at a time, so that there are many claims and many settles.
    let start = Start {
        failpoints: Some(format!("{place}=abort{when}")),
        arguments: ["--max-in-flight", "8"].map(str::to_owned).to_vec(),
        ..Start::default()
    };
    let doomed = arena.start(Role::Dispatch, start);
    let text = arena.ends_at_its_place(doomed).await;
    assert!(text.contains(place), "{text}");
    let next = arena.start(Role::Dispatch, Start::default());
    arena.all_settled().await;
    arena.terminate(next).await;
    let verdict = arena.judged().await;
    must_hold(&verdict);
    assert_eq!((verdict.figures.delivered, verdict.figures.dead), (EVENTS, 0), "{place}: {:?}", verdict.figures);
    verdict
}

async fn on_postgres(place: &str, when: &str) -> Verdict {
    ends_at(Arena::on_postgres(inbox().await, terms()).await, place, when).await
}

async fn on_sqlite(place: &str, when: &str) -> Verdict {
    ends_at(Arena::on_sqlite(inbox().await, terms()).await, place, when).await
}

/// P1, P11: leases that were granted to somebody who never heard of them expire, and nothing was sent under them.
#[tokio::test]
async fn after_a_claim_nothing_was_sent_and_all_is_taken_over() {
    let (postgres, sqlite) = tokio::join!(on_postgres("after_claim", "@3"), on_sqlite("after_claim", "@3"));
    for verdict in [postgres, sqlite] {
        assert!(verdict.figures.abandoned > 0, "{:?}", verdict.figures);
    }
}

/// P1, P19: what was sent and not settled is sent again, under the same id.
#[tokio::test]
async fn after_a_send_it_is_sent_once_more() {
    let (postgres, sqlite) = tokio::join!(on_postgres("after_send", "@9"), on_sqlite("after_send", "@9"));
    for verdict in [postgres, sqlite] {
        assert!(verdict.figures.unsettled_requests > 0, "{:?}", verdict.figures);
    }
}

/// P7: a result that never reached the store leaves no trace, and is made anew.
#[tokio::test]
async fn before_a_settle_the_attempt_is_not_counted() {
    let (postgres, sqlite) = tokio::join!(on_postgres("before_settle", "@4"), on_sqlite("before_settle", "@4"));
    for verdict in [postgres, sqlite] {
        assert!(verdict.figures.unsettled_requests > 0, "{:?}", verdict.figures);
    }
}

/// P5, P7, P9: a settle is applied as a whole or not at all, wherever in its midst the process ends. Where exactly that is
/// depends on the count, so several are tried.
#[tokio::test]
async fn inside_a_settle_it_is_all_or_nothing_on_postgres() {
    tokio::join!(
        on_postgres("inside_settle", "@1"),
        on_postgres("inside_settle", "@4"),
        on_postgres("inside_settle", "@7"),
        on_postgres("after_settle", "@4"),
    );
}

/// The same for the transaction of SQLite's writer: in its midst, before its commit and right after it.
#[tokio::test]
async fn inside_a_transaction_it_is_all_or_nothing_on_sqlite() {
    tokio::join!(
        on_sqlite("mid_transaction", "@13"),
        on_sqlite("before_commit", "@12"),
        on_sqlite("after_commit", "@12"),
        on_sqlite("after_settle", "@4"),
    );
}
