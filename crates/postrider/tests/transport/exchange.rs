//! What a receiver gets, and what is made of an honest answer.

use std::io::{Read, Write};
use std::process::Command;

use http::{HeaderName, HeaderValue, Version};
use postrider::{Outcome, TransportConfig};
use postrider_conformance::receiver::{Answer, Gate, Hostile, Receiver};
use postrider_conformance::wait::eventually;

use super::*;

#[tokio::test]
async fn p18_bytes_given_are_bytes_sent() {
    let receiver = Receiver::answering(200).await;
    let transport = transport();
    let long = vec![7; 300_000];
    let bodies: [&[u8]; 6] = [
        b"",
        b"{\"b\":1,\"a\":2,\"a\":3}",
        b"{\"n\":1e400,\"s\":\"\\u00e4\\ud800\"}",
        b"\xef\xbb\xbf{}\0\xff\xfe",
        b" \r\n\r\n0\r\n\r\n",
        &long,
    ];
    for body in bodies {
        let outcome = transport.post(Post { body: Bytes::copy_from_slice(body), ..post(&receiver.url()) }).await;
        assert_status(&outcome, 200);
        let request = receiver.requests().pop().unwrap();
        assert_eq!(request.body, body);
        assert_eq!(request.header("content-length"), body.len().to_string());
    }
}

#[tokio::test]
async fn the_request_is_a_post_with_the_given_headers_and_no_others() {
    let receiver = Receiver::answering(200).await;
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static("msg_1"));
    headers.append("x-many", HeaderValue::from_static("one"));
    headers.append("x-many", HeaderValue::from_static("two"));
    let url = format!("{}in/box?a=1&b=%20", receiver.url());
    assert_status(&transport().post(Post { headers, ..post(&url) }).await, 200);

    let request = receiver.requests().pop().unwrap();
    assert_eq!(request.method, http::Method::POST);
    assert_eq!(request.path, "/in/box?a=1&b=%20");
    assert_eq!(request.version, Version::HTTP_11);
    let mut names: Vec<&str> = request.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "host", "webhook-id", "x-many"]);
    assert_eq!(request.header("host"), receiver.address().to_string());
    assert_eq!(request.headers.get_all("x-many").iter().collect::<Vec<_>>(), ["one", "two"]);
}

#[tokio::test]
async fn framing_headers_cannot_be_overridden() {
    let receiver = Receiver::answering(200).await;
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("elsewhere.test"));
    headers.insert("content-length", HeaderValue::from_static("1"));
    headers.insert("transfer-encoding", HeaderValue::from_static("chunked"));
    assert_status(&transport().post(Post { headers, ..post(&receiver.url()) }).await, 200);
    let request = receiver.requests().pop().unwrap();
    assert_eq!(request.header("host"), receiver.address().to_string());
    assert_eq!(request.header("content-length"), "2");
    assert_eq!(request.header("transfer-encoding"), "");
    assert_eq!(request.body, "{}");
}

#[tokio::test]
async fn every_status_is_a_response_and_only_2xx_is_success() {
    for status in [200, 201, 202, 204, 206, 299, 300, 304, 400, 404, 410, 429, 500, 503, 599] {
        let receiver = Receiver::answering(status).await;
        let outcome = post_within(&transport(), &receiver.url(), AMPLE).await;
        assert_status(&outcome, status);
        assert_eq!(outcome.is_success(), (200..300).contains(&status), "{status}");
        assert_eq!(outcome.disables_endpoint(), status == 410, "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_read_on_429_and_503_only() {
    for (status, header, expected) in [
        (429, "120", Some(Duration::from_mins(2))),
        (503, "Sun, 06 Nov 1994 08:50:37 GMT", Some(Duration::from_mins(1))),
        (503, "soon", None),
        (500, "120", None),
        (200, "120", None),
    ] {
        let receiver = Receiver::start(move |_, _| {
            Answer::status(status).header("retry-after", header).header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        })
        .await;
        match post_within(&transport(), &receiver.url(), AMPLE).await {
            Outcome::Response(response) => assert_eq!(response.retry_after, expected, "{status} {header}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_excerpt_is_text_that_every_store_can_keep() {
    let receiver = Receiver::start(|_, _| Answer::status(500).body(&b"no\0 \xff way"[..])).await;
    let outcome = post_within(&transport(), &receiver.url(), AMPLE).await;
    assert_eq!(outcome.excerpt(), Some("no \u{fffd} way"));
    assert_eq!(outcome.error_detail().as_deref(), Some("HTTP 500: no \u{fffd} way"));
}

#[tokio::test]
async fn one_connection_serves_many_posts_in_turn() {
    let receiver = Receiver::start(|_, _| Answer::status(200).body("thank you")).await;
    let transport = transport();
    for _ in 0..20 {
        assert_status(&post_within(&transport, &receiver.url(), AMPLE).await, 200);
    }
    assert_eq!(receiver.request_count(), 20);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_connection_survives_a_body_a_little_longer_than_what_is_kept() {
    let receiver = Receiver::start(|_, _| Answer::status(200).body(vec![b'x'; 10_000])).await;
    let transport = transport();
    for _ in 0..5 {
        let outcome = post_within(&transport, &receiver.url(), AMPLE).await;
        assert_eq!(outcome.excerpt().map(str::len), Some(4096));
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn clones_share_connections_and_a_slow_answer_holds_up_no_other() {
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |request, _| match request.path.as_str() {
        "/slow" => Answer::status(200).after(&held),
        _ => Answer::status(204),
    })
    .await;
    let transport = transport();
    let slow = tokio::spawn({
        let (transport, url) = (transport.clone(), format!("{}slow", receiver.url()));
        async move { transport.post(post(&url)).await }
    });
    receiver.wait_for(1, AMPLE).await;
    for _ in 0..3 {
        assert_status(&post_within(&transport, &receiver.url(), AMPLE).await, 204);
    }
    assert_eq!(receiver.open_requests(), 1);
    gate.open();
    assert_status(&slow.await.unwrap(), 200);
    assert_eq!(receiver.connections(), 2);
    assert_eq!(receiver.most_open_requests(), 2);
}

#[tokio::test]
async fn idle_connections_are_bounded() {
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(
        move |_, number| {
            if number <= 8 { Answer::status(200).after(&held) } else { Answer::status(204) }
        },
    )
    .await;
    let transport = Transport::new(TransportConfig { max_idle_per_destination: 2, ..config() }).unwrap();
    let posts: Vec<_> = (0..8)
        .map(|_| {
            let (transport, url) = (transport.clone(), receiver.url());
            tokio::spawn(async move { transport.post(post(&url)).await })
        })
        .collect();
    receiver.wait_for(8, AMPLE).await;
    assert_eq!(receiver.connections(), 8);
    gate.open();
    for posted in posts {
        assert_status(&posted.await.unwrap(), 200);
    }
    receiver.wait_until("six connections to be given up", AMPLE, |receiver| receiver.closed_connections() >= 6).await;
    assert_status(&post_within(&transport, &receiver.url(), AMPLE).await, 204);
    assert_eq!(receiver.connections(), 8, "one of the two that were kept was used");
}

#[tokio::test]
async fn a_kept_connection_that_the_receiver_closed_costs_nothing() {
    let hostile = Hostile::closes_kept_connections().await;
    let transport = transport();
    for round in 1..=5 {
        assert_status(&post_within(&transport, &hostile.url(), AMPLE).await, 204);
        // The receiver's side ends when it has seen our side close in turn.
        eventually("the connection's end", AMPLE, || std::future::ready((hostile.ended() == round).then_some(())))
            .await;
    }
    assert_eq!(hostile.accepted(), 5);
}

/// The closing is already in our socket, but nothing here has looked at it when the next request is handed over: this
/// runtime has one thread, and that thread waits for the receiver's.
#[tokio::test(flavor = "current_thread")]
async fn a_request_handed_to_a_connection_that_is_just_closing_goes_to_another() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (taken, was_taken) = std::sync::mpsc::channel();
    let (closed, was_closed) = std::sync::mpsc::channel();
    let receiver = std::thread::spawn(move || {
        for _ in 0..5 {
            let (mut tcp, _) = listener.accept().unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 1024];
            while !seen.ends_with(b"{}") {
                let count = tcp.read(&mut buffer).unwrap();
                assert_ne!(count, 0, "a request was sent in part");
                seen.extend_from_slice(&buffer[..count]);
            }
            tcp.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            was_taken.recv().unwrap();
            drop(tcp);
            closed.send(()).unwrap();
        }
    });
    let transport = transport();
    for _ in 0..5 {
        assert_status(&transport.post(post(&url)).await, 204);
        taken.send(()).unwrap();
        was_closed.recv().unwrap();
    }
    receiver.join().unwrap();
}

#[tokio::test]
async fn a_url_that_is_not_accepted_any_more_is_blocked_and_not_dialled() {
    let receiver = Receiver::answering(200).await;
    let strict = Transport::new(TransportConfig::default()).unwrap();
    let outcome = post_within(&strict, &receiver.url(), AMPLE).await;
    assert_detail(&outcome, "blocked", "destination_loopback_address");
    let outcome = post_within(&strict, "ftp://example.com/", AMPLE).await;
    assert_detail(&outcome, "blocked", "scheme");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn an_ipv6_address_is_dialled_as_it_is_written() {
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        // Machines without IPv6 refuse the bind itself; the same URL must then fail to connect, and say to what.
        let outcome = post_within(&transport(), "http://[::1]:9/", AMPLE).await;
        return assert_detail(&outcome, "connect", "[::1]:9");
    };
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let outcome = post_within(&transport(), &url, AMPLE).await;
    assert_detail(&outcome, "connect", "connection refused by [::1]:");
}

#[tokio::test]
async fn debug_output_holds_neither_headers_nor_body() {
    let mut headers = HeaderMap::new();
    headers.insert("webhook-signature", HeaderValue::from_static("v1,canary"));
    let post = Post { headers, body: Bytes::from_static(b"canary"), ..post("https://example.com/") };
    assert!(!format!("{post:?}").contains("canary"));
}

/// Runs itself once more in a process whose environment names a proxy.
#[tokio::test]
async fn proxy_variables_are_not_inherited() {
    const URL: &str = "POSTRIDER_TEST_PROXY_BYPASS_URL";
    if let Ok(url) = std::env::var(URL) {
        assert_status(&post_within(&transport(), &url, AMPLE).await, 204);
        return;
    }
    let proxy = Hostile::says_nothing().await;
    let receiver = Receiver::answering(204).await;
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "exchange::proxy_variables_are_not_inherited"]).env(URL, receiver.url());
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        again.env(name, proxy.url());
    }
    again.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || again.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(receiver.request_count(), 1);
    assert_eq!(proxy.accepted(), 0);
}

#[test]
fn a_transport_without_time_to_connect_is_refused() {
    let config = TransportConfig { connect_timeout: Duration::ZERO, ..config() };
    assert_eq!(Transport::new(config).unwrap_err().to_string(), "connect_timeout must be more than zero");
}
