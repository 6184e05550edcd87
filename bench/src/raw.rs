//! The raw limit: the same client posting the same bytes to the same receivers, with no store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use postrider::transport::roots_from;
use postrider::{Post, Transport, TransportConfig};

use crate::Failure;
use crate::lab::{Lab, loopback, per_second};

/// With 32 to 512 it was the same, where receivers answer at once.
const CLIENTS: usize = 256;

/// The headers of a delivery, with values of the same length. None of them is computed: signing is not the client's work.
fn headers(number: usize) -> HeaderMap {
    const CONSTANT: [(HeaderName, HeaderValue); 7] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::USER_AGENT, HeaderValue::from_static("Postrider/0.1.0")),
        (HeaderName::from_static("postrider-event-type"), HeaderValue::from_static("bench.event")),
        (HeaderName::from_static("postrider-attempt"), HeaderValue::from_static("1")),
        (HeaderName::from_static("webhook-id"), HeaderValue::from_static("evt_01h455vb4pex5vsknk084sn02q")),
        (HeaderName::from_static("webhook-timestamp"), HeaderValue::from_static("1763280000")),
        (
            HeaderName::from_static("webhook-signature"),
            HeaderValue::from_static("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ),
    ];
    let id = HeaderValue::try_from(format!("dlv_{number:026}")).expect("digits are visible ASCII");
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert(HeaderName::from_static("postrider-delivery-id"), id);
    headers.extend(CONSTANT);
    headers
}

/// So many posts to the receivers of a lab: how many per second.
pub(crate) async fn limit(lab: &mut Lab, posts: usize, body: Bytes) -> Result<f64, Failure> {
    limit_of(CLIENTS, lab, posts, body).await
}

/// The same by so many clients at once.
pub(crate) async fn limit_of(clients: usize, lab: &mut Lab, posts: usize, body: Bytes) -> Result<f64, Failure> {
    let extra_roots = match &lab.authority {
        Some(file) => roots_from(&std::fs::read(file)?)?,
        None => Vec::new(),
    };
    let transport = Transport::new(TransportConfig { destinations: loopback()?, extra_roots, ..Default::default() })?;
    let (next, urls) = (Arc::new(AtomicUsize::new(0)), Arc::new(lab.sink.urls.clone()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (transport, next, body, urls) = (transport.clone(), Arc::clone(&next), body.clone(), Arc::clone(&urls));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= posts {
                    return true;
                }
                let post = || {
                    let (url, body) = (urls[number % urls.len()].clone(), body.clone());
                    Ok(Post { url, headers: headers(number), body, timeout: Duration::from_secs(15) })
                };
                let outcome = transport.try_post(post, SystemTime::now()).await;
                if !outcome.is_ok_and(|outcome| outcome.is_success()) {
                    return false;
                }
            }
        });
    }
    if tasks.join_all().await.into_iter().any(|succeeded| !succeeded) {
        return Err("the sink refused a request".into());
    }
    // As deliveries are measured: from the first to the last that arrived, without the start.
    Ok(per_second(posts, lab.sink.take()?.span()))
}
