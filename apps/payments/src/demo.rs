//! `payments demo`: the three runtimes as processes of their own, beside a simulated chain and a receiver.
//!
//! One payment request is paid and one is not. The demo ends when the receiver has heard the whole story of both.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use postrider::Secret;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::config::{self, Environment};
use crate::dispatcher::signature_scheme;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK_TIME: Duration = Duration::from_millis(700);
const AMOUNT_WEI: u128 = 1_000_000_000_000_000_000;

pub(crate) async fn run(environment: &Environment) -> Result<(), Failure> {
    let database_url = match environment.text("POSTRIDER_TEST_POSTGRES")? {
        // What `scripts/with-postgres` has started.
        Some(url) if environment.text(config::DATABASE_URL)?.is_none() => url.to_owned(),
        _ => config::database_url(environment)?,
    };
    tokio::time::timeout(PATIENCE, story(&database_url))
        .await
        .unwrap_or_else(|_| Err(Failure::Other(format!("the demo did not end within {PATIENCE:?}"))))
}

async fn story(database_url: &str) -> Result<(), Failure> {
    let secret = Secret::generate();
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let node_url = listen(Router::new().route("/", post(answer)).with_state(Arc::clone(&ledger))).await?;
    let (told, mut heard) = mpsc::channel(100);
    let receiver = Receiver { secret: secret.clone(), told };
    let receiver_url = listen(Router::new().route("/", post(receive)).with_state(receiver)).await?;

    let start = |runtime, variables: &[(&str, &str)]| Runtime::start(runtime, database_url, variables);
    let destinations = [(config::ALLOWED_HOSTS, "127.0.0.1"), (config::ALLOWED_NETWORKS, "127.0.0.0/8")];
    let mut server = start("server", &[destinations[0], destinations[1], (config::LISTEN, "127.0.0.1:0")])?;
    let chain =
        [(config::RPC_URL, &*node_url), (config::RECONCILE_INTERVAL, "200ms"), (config::MIN_CONFIRMATIONS, "3")];
    let _reconciler = start("reconciler", &chain)?;
    let secret = secret.reveal();
    let signed = [destinations[0], destinations[1], (config::HMAC_SECRET, secret.as_str())];
    let _dispatcher = start("webhook-dispatcher", &signed)?;
    let api = server.url().await?;

    let paid = create(&api, &receiver_url, "1h").await?;
    let unpaid = create(&api, &receiver_url, "3s").await?;
    say(&format!("{} can be paid for an hour, {} for 3 seconds", paid.id, unpaid.id));
    lock(&ledger).pay(&paid.address, AMOUNT_WEI);
    say(&format!("1 ether was paid to {}", paid.address));

    let mut blocks = tokio::time::interval(BLOCK_TIME);
    let mut untold = vec![(paid.id, "confirmed"), (unpaid.id, "expired")];
    while !untold.is_empty() {
        tokio::select! {
            _ = blocks.tick() => lock(&ledger).latest += 1,
            Some(webhook) = heard.recv() => {
                say(&format!("a genuine webhook arrived: {webhook}"));
                untold.retain(|(id, last)| {
                    webhook["payment_request_id"] != id.to_string() || webhook["new_status"] != *last
                });
            }
        }
    }
    say("everything was told");
    Ok(())
}

fn say(text: &str) {
    // The demo goes on without anybody to read it.
    let _ = writeln!(std::io::stdout(), "demo: {text}");
}

/// Serves on a free port of the loopback interface.
async fn listen(router: Router) -> Result<String, Failure> {
    let failed = |error| Failure::Io("cannot listen on the loopback interface".to_owned(), error);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/"))
}

/// One of this program's runtimes, which ends with this value.
struct Runtime {
    _child: Child,
    urls: mpsc::Receiver<String>,
}

impl Runtime {
    fn start(runtime: &'static str, database_url: &str, variables: &[(&str, &str)]) -> Result<Self, Failure> {
        let failed = |error| Failure::Io(format!("cannot start the {runtime}"), error);
        let mut child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg(runtime)
            .env(config::DATABASE_URL, database_url)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let log = child.stderr.take().expect("it was asked for");
        let (found, urls) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut lines = BufReader::new(log).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = writeln!(std::io::stdout(), "{runtime}: {line}");
                if let Some((_, url)) = line.split_once("listening url=") {
                    let _ = found.try_send(url.split_whitespace().next().unwrap_or_default().to_owned());
                }
            }
        });
        Ok(Self { _child: child, urls })
    }

    /// Where it listens, once it does.
    async fn url(&mut self) -> Result<String, Failure> {
        self.urls.recv().await.ok_or_else(|| Failure::Other("the server did not start; see above".to_owned()))
    }
}

struct Created {
    id: Uuid,
    address: String,
}

async fn create(api: &str, webhook_url: &str, expires_in: &str) -> Result<Created, Failure> {
    let random = Uuid::new_v4().simple().to_string();
    let address = format!("0x{random}{}", &random[..8]);
    let body = json!({"address": address, "amount_wei": AMOUNT_WEI.to_string(), "webhook_url": webhook_url,
        "expires_in": expires_in});
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: reqwest::Error| Failure::Other(format!("the server did not take a payment request: {error}"));
    let response = reqwest::Client::new().post(format!("{api}/v1/payment-requests")).json(&body).send().await;
    let created: Value =
        response.and_then(reqwest::Response::error_for_status).map_err(failed)?.json().await.map_err(failed)?;
    let id = created["id"].as_str().and_then(|id| id.parse().ok());
    Ok(Created { id: id.ok_or_else(|| Failure::Other("the server answered without an id".to_owned()))?, address })
}

/// A chain that knows nothing but who was paid in which block.
#[derive(Debug, Default)]
struct Ledger {
    latest: u64,
    paid: HashMap<String, (u64, u128)>,
}

impl Ledger {
    /// In the next block.
    fn pay(&mut self, address: &str, amount_wei: u128) {
        self.latest += 1;
        self.paid.insert(address.to_owned(), (self.latest, amount_wei));
    }

    fn balance(&self, address: &str, block: &str) -> u128 {
        let block = block.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match self.paid.get(address) {
            Some((since, amount)) if *since <= block.unwrap_or(self.latest) => *amount,
            _ => 0,
        }
    }
}

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(ledger): State<Arc<Mutex<Ledger>>>, Json(question): Json<Value>) -> Json<Value> {
    let ledger = lock(&ledger);
    let text = |index: usize| question["params"][index].as_str().unwrap_or_default();
    let number = match question["method"].as_str() {
        Some("eth_blockNumber") => ledger.latest.into(),
        _ => ledger.balance(text(0), text(1)),
    };
    Json(json!({"jsonrpc": "2.0", "id": question["id"], "result": format!("{number:#x}")}))
}

#[derive(Debug, Clone)]
struct Receiver {
    secret: Secret,
    told: mpsc::Sender<Value>,
}

/// What every receiver should do: verify the bytes as they arrived, and only then read them.
async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: axum::body::Bytes) -> StatusCode {
    let (now, tolerance) = (jiff::Timestamp::now().as_second(), postrider::signature::DEFAULT_TOLERANCE);
    let Ok(scheme) = signature_scheme() else { return StatusCode::INTERNAL_SERVER_ERROR };
    if scheme.verify_headers(&[receiver.secret], &headers, &body, now, tolerance).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(webhook) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST };
    // When nobody listens any more, the demo is over.
    let _ = receiver.told.send(webhook).await;
    StatusCode::NO_CONTENT
}
