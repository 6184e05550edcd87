//! The transport against real sockets: what receivers get, and what is made of what they do.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod exchange;
mod misbehaving;
mod names;
mod tls;

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use postrider::{DestinationPolicy, Outcome, Post, Transport, TransportConfig};

/// Time enough for what should happen at once.
const AMPLE: Duration = Duration::from_secs(20);
/// A deadline that a test waits for.
const SHORT: Duration = Duration::from_millis(500);
/// How late a deadline may be noticed on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(2);

fn config() -> TransportConfig {
    TransportConfig {
        destinations: DestinationPolicy::default().allow_networks(["127.0.0.0/8", "::1/128"]).unwrap(),
        ..TransportConfig::default()
    }
}

fn transport() -> Transport {
    Transport::new(config()).unwrap()
}

fn post(url: &str) -> Post {
    Post { url: url.to_owned(), headers: HeaderMap::new(), body: Bytes::from_static(b"{}"), timeout: AMPLE }
}

/// Posts with a deadline of `timeout`, and makes sure that the outcome is there by then.
async fn post_within(transport: &Transport, url: &str, timeout: Duration) -> Outcome {
    let started = Instant::now();
    let outcome = transport.post(Post { timeout, ..post(url) }).await;
    let elapsed = started.elapsed();
    assert!(elapsed < timeout + SLACK, "{elapsed:?} is longer than {timeout:?}: {outcome:?}");
    outcome
}

/// The detail of an outcome of this kind, in lower case.
#[track_caller]
fn detail(outcome: &Outcome, kind: &str) -> String {
    assert_eq!(outcome.kind().as_str(), kind, "{outcome:?}");
    let detail = outcome.error_detail().expect("a failure has a detail");
    assert_eq!(detail.lines().count(), 1, "a detail is one line: {detail}");
    for internal in ["hyper", "rustls", "hickory", "Error", "Some("] {
        assert!(!detail.contains(internal), "no internal names: {detail}");
    }
    detail.to_lowercase()
}

#[track_caller]
fn assert_detail(outcome: &Outcome, kind: &str, sense: &str) {
    let detail = detail(outcome, kind);
    assert!(detail.contains(sense), "`{detail}` does not say `{sense}`");
}

#[track_caller]
fn assert_status(outcome: &Outcome, status: u16) {
    assert_eq!(outcome.status_code(), Some(status), "{outcome:?}");
}
