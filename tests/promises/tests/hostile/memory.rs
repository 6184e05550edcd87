//! Memory that is bounded whatever receivers send (P16).

use std::time::{Duration, Instant};

use postrider::{Admission, DestinationPolicy, NewEvent, Store as _};
use postrider_conformance::receiver::{Authority, Hostile, Http2Attack, NameServer, Question, Receiver, Reply};
use postrider_conformance::wait::eventually;
use postrider_postgres::testing::TestDatabase;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use postrider_promises::{canary, memory};

use crate::stage::{alone, measured};

const HOST: &str = "flood.example.com";
/// Receivers of HTTP/2 for each way to flood; each has one connection, since a destination's requests share it.
const EACH: usize = 16;
/// Deliveries to each of the others, at the same time.
const AT_ONCE: usize = 24;
/// For how long all of them are fed from.
const FOR: Duration = Duration::from_secs(8);
/// What the process may hold in memory at once, and what the system gives it before it ends it.
const MOST: u64 = 200 << 20;
const LIMIT: u64 = 320 << 20;

/// Everything that never ends, and what is far too long.
async fn crowd(authority: &Authority) -> (Vec<Hostile>, Vec<(String, usize)>) {
    let mut hostile = Vec::new();
    let mut urls = Vec::new();
    for attack in Http2Attack::FLOODS {
        for _ in 0..EACH {
            let receiver = Hostile::http2(authority.identity(HOST), attack).await;
            urls.push((format!("https://{HOST}:{}/", receiver.address().port()), 2));
            hostile.push(receiver);
        }
    }
    let others = [
        Hostile::endless_body().await,
        Hostile::ten_gigabytes().await,
        Hostile::gzip_bomb(1 << 30).await,
        Hostile::endless_headers().await,
        Hostile::interim_flood().await,
        Hostile::megabyte_header().await,
        Hostile::stalls_in_body().await,
    ];
    urls.extend(others.iter().map(|receiver| (receiver.url(), AT_ONCE)));
    hostile.extend(others);
    (hostile, urls)
}

/// P16: more than two hundred connections of the worst kinds are fed from for seconds, by a process that would be ended
/// if it took more than a limit, and that stays far below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_dispatcher_stays_small_whatever_receivers_send() {
    let _machine = alone().await;
    let authority = Authority::new();
    let names = NameServer::start(|_, question, _| match question {
        Question::A => Reply::loopback(),
        _ => Reply::addresses(&[]),
    })
    .await;
    let (hostile, urls) = crowd(&authority).await;
    let honest = Receiver::answering(204).await;
    let database = TestDatabase::create().await;
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap();
    let store = database.store().with_admission(Admission { destinations, ..Admission::default() });
    let event = |url: &str| NewEvent::new("a.b", format!(r#"{{"canary":"{}"}}"#, canary::PAYLOAD)).to(url);
    for (url, count) in &urls {
        store.enqueue(vec![event(url); *count]).await.unwrap();
    }

    let workplace = Workplace::on(database.url());
    let file = workplace.path().join("authority.pem");
    std::fs::write(&file, authority.root_pem()).unwrap();
    let workplace = workplace
        .with("SSL_CERT_FILE", file.to_str().unwrap())
        .with("POSTRIDER_NAME_SERVERS", &names.address().to_string())
        .with("POSTRIDER_RETRY_SCHEDULE", "1s")
        .with("POSTRIDER_MAX_ATTEMPTS", "1000")
        .with("POSTRIDER_POLL_INTERVAL", "100ms")
        .with("POSTRIDER_TIMEOUT", "3s");
    let mut dispatching = Running::start(memory::limited(&workplace.command(["dispatch"]), LIMIT));
    dispatching.line("the start", |line| line.contains("dispatching from")).await;

    let started = Instant::now();
    let mut served = 0;
    while started.elapsed() < FOR || hostile.iter().any(|receiver| receiver.accepted() == 0) {
        assert!(started.elapsed() < PATIENCE, "not every receiver was reached");
        store.enqueue(vec![event(&honest.url())]).await.unwrap();
        served += 1;
        // A flood that kept us busy would keep everybody waiting.
        eventually("the arrival at somebody honest", PATIENCE, async || {
            assert_eq!(dispatching.has_ended(), None, "{}", dispatching.text());
            (honest.request_count() == served).then_some(())
        })
        .await;
    }
    let connections: usize = hostile.iter().map(Hostile::accepted).sum();
    let sent: u64 = hostile.iter().map(Hostile::bytes_sent).sum();
    let peak = memory::peak(dispatching.pid());
    measured(
        "dispatcher under floods",
        (peak >> 20, "MiB at most;", connections, "connections;", sent >> 20, "MiB offered;", served, "served beside"),
    );
    assert!(peak < MOST, "it held {} MiB", peak >> 20);
    // It has not only survived, it still ends in order.
    dispatching.stopped().await;
    eventually("the end of every connection", PATIENCE, async || {
        hostile.iter().all(|receiver| receiver.ended() == receiver.accepted()).then_some(())
    })
    .await;
}
