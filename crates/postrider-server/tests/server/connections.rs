//! Nobody holds a place for ever, and there are only so many.

use std::time::Duration;

use postrider_conformance::wait::{PATIENCE, eventually, within};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Api, Raw, answer};

const SOON: Duration = Duration::from_millis(200);

async fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = within("the server closes the connection", PATIENCE, stream.read_to_end(&mut bytes)).await;
    bytes
}

#[tokio::test]
async fn a_client_that_is_slow_or_silent_is_closed() {
    let api = Api::start_with(|setup| {
        setup.config.header_read_timeout = SOON;
        setup.config.keep_alive_timeout = SOON;
        setup.config.body_read_timeout = SOON;
    })
    .await;
    let beginnings: [(&str, &[u8]); 6] = [
        ("silent from the beginning", b""),
        ("one byte", b"G"),
        ("the beginning of HTTP/2", b"PRI * HTTP/2"),
        ("HTTP/2 that says nothing more", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
        ("a head without end", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: "),
        ("silent after a request", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    ];
    for (name, bytes) in beginnings {
        let mut stream = TcpStream::connect(api.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let answer = closed(&mut stream).await;
        assert_eq!(name == "silent after a request", answer.starts_with(b"HTTP/1.1 200"), "{name}: {answer:?}");
    }
    // One that sends a byte of its head now and then does not get longer than one that sends none.
    let stream = TcpStream::connect(api.address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let dripping = tokio::spawn(async move {
        let _ = writing.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await;
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut bytes = Vec::new();
    let _ = within("the server closes a dripping connection", PATIENCE, reading.read_to_end(&mut bytes)).await;
    dripping.abort();
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let api = Api::start_with(|setup| setup.config.body_read_timeout = SOON).await;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: 100\r\n\r\n{{",
        api.admin
    );
    let answer = api.raw(head.as_bytes()).await;
    assert_eq!((answer.status, &answer.json()["code"]), (408, &json!("body_timeout")), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered() {
    let (store, folder) = crate::support::sqlite().await;
    let api =
        Api::start_on(std::sync::Arc::new(store.clone()), folder, |setup| setup.config.request_timeout = SOON).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let held = tokio::spawn(async move {
        let transaction = store.transaction(move |_| {
            let _ = released.recv();
            Ok::<_, postrider::StoreError>(())
        });
        let _ = transaction.await;
    });
    let slow = async || {
        let (status, problem) = api.post("/v1/events", r#"{"type":"a.b","payload":1}"#).await;
        (status == 503).then_some(problem)
    };
    let problem = eventually("an enqueue behind a long transaction takes too long", PATIENCE, slow).await;
    assert_eq!(problem["code"], "request_timeout");
    drop(release);
    held.await.unwrap();
}

#[tokio::test]
async fn more_requests_than_there_are_places_for_are_sent_away() {
    let api = Api::start_with(|setup| setup.config.max_requests = 1).await;
    let mut slow = TcpStream::connect(api.address).await.unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: 26\r\n\r\n",
        api.admin
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let busy = async || {
        let response = api.request(Method::GET, "/v1/events").send().await.unwrap();
        (response.status() == 503).then_some(response)
    };
    let response = eventually("the one place is taken", PATIENCE, busy).await;
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(crate::support::read(response).await.1["code"], "overloaded");
    assert_eq!(answer(api.bare(Method::GET, "/healthz")).await.0, 200, "whoever looks after it still can");
    slow.write_all(br#"{"type":"a.b","payload":1}"#).await.unwrap();
    assert_eq!(Raw::read(&mut slow).await.status, 202);
    assert_eq!(api.get("/v1/events").await.0, 200);
}

#[tokio::test]
async fn more_connections_than_there_are_places_for_are_turned_away() {
    let api = Api::start_with(|setup| setup.config.max_connections = 2).await;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(api.address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        taken.push(stream);
    }
    let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = api.raw(request).await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("overloaded")), "{answer:?}");
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    drop(taken);
    let free = async || (api.raw(request).await.status == 200).then_some(());
    eventually("there is a place again", PATIENCE, free).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let api = Api::start_with(|setup| setup.config.write_timeout = SOON).await;
    let large = json!({"type": "a.b", "payload": "x".repeat(250_000)}).to_string();
    for _ in 0..16 {
        assert_eq!(api.post("/v1/events", large.clone()).await.0, 202);
    }
    let mut stream = TcpStream::connect(api.address).await.unwrap();
    let head = format!("GET /v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", api.admin);
    for _ in 0..20 {
        // Answers to many requests are more than the sockets' buffers can hold.
        stream.write_all(head.as_bytes()).await.unwrap();
    }
    // Writing to a connection that the other side has given up fails, sooner or later.
    let given_up = async || stream.write_all(b"x").await.err();
    eventually("the server gives the client up", PATIENCE, given_up).await;
}

#[tokio::test]
async fn more_than_there_is_room_for_is_sent_away() {
    let api = Api::start_with(|setup| setup.config.max_body_bytes_held = 64 * 1024).await;
    let large = json!({"type": "a.b", "payload": "x".repeat(100_000)}).to_string();
    let (status, problem) = api.post("/v1/events", large).await;
    assert_eq!((status, &problem["code"]), (503, &json!("overloaded")), "{problem}");
    let fits = json!({"type": "a.b", "payload": "x".repeat(50_000)}).to_string();
    for _ in 0..3 {
        assert_eq!(api.post("/v1/events", fits.clone()).await.0, 202, "and gives its room back");
    }
}
