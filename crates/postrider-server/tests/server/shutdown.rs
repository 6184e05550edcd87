//! Stopping: what is under way is finished, and what was acknowledged is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_conformance::wait::{PATIENCE, eventually};
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Api, Raw, client};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_everything_acknowledged_under_load_is_there_after_a_stop() {
    let mut api = Api::start().await;
    let url = api.url("/v1/events");
    let stopping = Arc::new(AtomicBool::new(false));
    let posters: Vec<_> = (0..16)
        .map(|poster| {
            let (url, key, stopping) = (url.clone(), api.admin.clone(), Arc::clone(&stopping));
            tokio::spawn(async move {
                let client = client();
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    let body = json!({"type": "load.test", "payload": [poster, number]}).to_string();
                    let request =
                        client.post(&url).bearer_auth(&key).header("content-type", "application/json").body(body);
                    match request.send().await {
                        Ok(response) => {
                            let (status, enqueued) = crate::support::read(response).await;
                            assert_eq!(status, 202, "{enqueued}");
                            acknowledged.push(enqueued["id"].as_str().unwrap().to_owned());
                        }
                        // Only a server that stops may break a connection, or refuse one.
                        Err(error) => {
                            assert!(stopping.load(Ordering::SeqCst), "{error}");
                            break;
                        }
                    }
                }
                acknowledged
            })
        })
        .collect();
    let some = async || {
        let all = api.store.overview(None).await.unwrap();
        let events = api.get("/v1/events?limit=250").await.1["data"].as_array().unwrap().len();
        (events >= 100).then_some(all)
    };
    eventually("some load", PATIENCE, some).await;
    stopping.store(true, Ordering::SeqCst);
    api.tell_to_stop();
    api.stopped().await;
    let mut acknowledged = 0;
    for poster in posters {
        for id in poster.await.unwrap() {
            acknowledged += 1;
            assert!(api.store.event(id.parse().unwrap()).await.unwrap().is_some(), "{id} was acknowledged");
        }
    }
    assert!(acknowledged >= 100);
}

#[tokio::test]
async fn requests_under_way_are_finished_and_readiness_ends_at_once() {
    let mut api = Api::start().await;
    let mut slow = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 26\r\n\r\n",
        api.admin
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    // The server knows of the request when it is counted as under way: when it has read the head.
    let mut waiting = TcpStream::connect(api.address).await.unwrap();
    waiting.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(Raw::read(&mut waiting).await.status, 200);
    let idle = TcpStream::connect(api.address).await.unwrap();

    api.tell_to_stop();
    let address = api.address;
    let refused = async || TcpStream::connect(address).await.is_err().then_some(());
    eventually("no new connections", PATIENCE, refused).await;
    slow.write_all(br#"{"type":"a.b","payload":1}"#).await.unwrap();
    let answer = Raw::read(&mut slow).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    api.stopped().await;
    drop(idle);
}

#[tokio::test]
async fn a_request_that_does_not_finish_is_broken_off_after_the_drain_timeout() {
    let mut api = Api::start_with(|setup| setup.config.drain_timeout = Duration::from_millis(300)).await;
    let mut slow = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: 26\r\n\r\n",
        api.admin
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(api.request(Method::GET, "/v1/events").send().await.unwrap().status(), 200);
    api.tell_to_stop();
    api.stopped().await;
    assert_eq!(Raw::read(&mut slow).await.status, 0, "there is no answer to a request that never came");
}

#[tokio::test]
async fn events_of_callers_that_have_gone_are_written_before_the_stop() {
    let (store, folder) = crate::support::sqlite().await;
    let mut api = Api::start_on(Arc::new(store.clone()), folder, |setup| {
        setup.config.request_timeout = Duration::from_millis(200);
    })
    .await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (held, holding) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let transaction = store.transaction(move |_| {
            let _ = held.send(());
            let _ = released.recv();
            Ok::<_, postrider::StoreError>(())
        });
        let _ = transaction.await;
    });
    holding.await.unwrap();
    let body = r#"{"type":"a.b","payload":1}"#;
    let request = api.request(Method::POST, "/v1/events").header("content-type", "application/json");
    assert_eq!(request.body(body).send().await.unwrap().status(), 503, "its caller does not wait");
    api.tell_to_stop();
    drop(release);
    api.stopped().await;
    let page = postrider::PageRequest::default();
    let events = api.store.events(&postrider::EventFilter::default(), &page, 1_000).await.unwrap();
    assert_eq!(events.items.len(), 1);
}

/// A load balancer needs a moment to notice; until then, whoever comes is served, and told not to come again.
#[tokio::test]
async fn a_server_that_stops_says_so_to_those_who_still_come() {
    let mut api = Api::start_with(|setup| setup.config.linger = Duration::from_secs(5)).await;
    api.tell_to_stop();
    eventually("readiness to end", PATIENCE, async || (api.get("/readyz").await.0 == 503).then_some(())).await;
    let mut probe = TcpStream::connect(api.address).await.unwrap();
    probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = Raw::read(&mut probe).await;
    assert!(answer.status == 200 && answer.head.contains("connection: close"), "{}", answer.head);
    let (status, enqueued) = api.post("/v1/events", json!({"type": "a.b", "payload": 1}).to_string()).await;
    assert_eq!(status, 202, "{enqueued}");
    api.stopped().await;
    assert!(TcpStream::connect(api.address).await.is_err(), "and then it is gone");
}
