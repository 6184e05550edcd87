//! A receiver that verifies with the official crate, and prints what it gets.
#![allow(clippy::print_stdout)]

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use standardwebhooks::Webhook;

struct Receiver {
    webhook: Webhook,
    seen: Mutex<HashSet<String>>,
}

// The bytes as they came: JSON that was read and written again is other bytes.
async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if receiver.webhook.verify(&body, &headers).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = text("webhook-id");
    if receiver.seen.lock().expect("nobody panics while holding it").insert(id.to_owned()) {
        println!("{} {id} {}", text("postrider-event-type"), String::from_utf8_lossy(&body));
    } else {
        println!("seen before {id}");
    }
    StatusCode::NO_CONTENT
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let webhook = Webhook::new(&std::env::var("WEBHOOK_SECRET")?)?;
    let receiver = Arc::new(Receiver { webhook, seen: Mutex::default() });
    let app = Router::new().route("/", post(receive)).layer(DefaultBodyLimit::max(1_000_000)).with_state(receiver);
    let port = std::env::var("PORT").unwrap_or("9400".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}/", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
