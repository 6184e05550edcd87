//! `postrider demo`: something to look at in ten seconds.
//!
//! It is the real thing on a temporary database: the server as `postrider serve --dev` has it, a dispatcher, and
//! endpoints that are registered through the same service that the API uses. Only the receiver is made up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use http::StatusCode;
use jiff::Timestamp;
use postrider::{
    Admission, Announcement, DestinationPolicy, Dispatcher, EndpointId, EventId, Fact, Feed, Heard, Keyring,
    PageRequest, RetryPolicy, Secret, SecretKey, SignatureScheme, Store, Subscription, duration,
};
use postrider_server::api::endpoints::{Confidential, NewEndpoint};
use postrider_server::api::events::EventRequest;
use postrider_server::{Caller, Server, ServerConfig, Service, ServiceSettings};
use postrider_sqlite::SqliteStore;
use tokio::sync::mpsc;

use crate::commands::{Context, deliveries};
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::process::{self, Process};
use crate::receiver::{Arrival, Behaviour, Receiver};
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  postrider demo
  postrider demo --for 10s";

/// Show a server, its deliveries, retries and dead letters, with nothing to set up
///
/// A server on a temporary SQLite database, a receiver on loopback that fails now and then, and some traffic. Facts are
/// printed as they are announced, until Ctrl-C. Nothing is left behind.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// End by itself: send for this long, then see everything settled
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    send_for: Option<Duration>,
}

/// The receivers, each with the event types that it wants.
const ENDPOINTS: [(&str, &[&str]); 3] =
    [("billing", &["invoice.*"]), ("crm", &["customer.*", "invoice.paid"]), ("reports", &["report.*"])];

/// The events, each with the receiver that has trouble with it and how many attempts that one lets fail.
const EVENTS: [(&str, &str, u32); 8] = [
    ("invoice.sent", "", 0),
    ("invoice.paid", "billing", 1),
    ("customer.created", "", 0),
    ("report.ready", "reports", 2),
    ("invoice.overdue", "billing", u32::MAX),
    ("customer.renamed", "", 0),
    ("report.archived", "reports", 1),
    ("invoice.sent", "", 0),
];

const SCHEDULE: [Duration; 3] = [Duration::from_millis(400), Duration::from_millis(800), Duration::from_secs(2)];
/// The first round goes quickly, so that there is something to see; what follows leaves time to read.
const BETWEEN_FIRST_EVENTS: Duration = Duration::from_millis(150);
const BETWEEN_EVENTS: Duration = Duration::from_millis(900);
/// How long the last deliveries may take to be settled.
const AT_MOST: Duration = Duration::from_secs(20);

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let signals = Signals::catch()?;
    let folder = tempfile::tempdir().map_err(|error| {
        Failure::new(Exit::Failed, "temporary_folder_failed", format!("cannot make a temporary folder: {error}"))
    })?;
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"])?;
    let policy = RetryPolicy::schedule(SCHEDULE, 4)?;
    let admission = Admission { destinations: destinations.clone(), bare_destinations: false, ..Admission::default() };
    let store = SqliteStore::open(folder.path().join("demo.db"))?
        .with_admission(admission.clone())
        .with_keyring(Keyring::new([SecretKey::generate()]));
    store.migrate().await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let settings = ServiceSettings { admission, retry_policy: policy.clone(), ..ServiceSettings::default() };
    let service = Service::new(Arc::clone(&store), settings);
    let secret = Secret::generate();
    let receiver = start_receiver(secret.clone()).await?;
    let endpoints = register(&service, &receiver, &secret).await?;

    let (listener, url) = process::bind(([127, 0, 0, 1], 0).into()).await?;
    introduce(&url, &receiver, &policy, output)?;
    let feed = Feed::start(Arc::clone(&store)).await?;
    let told = feed.subscribe(postrider::DEFAULT_TOPIC);
    let drain_timeout = Duration::from_secs(2);
    let dispatcher = Dispatcher::builder(Arc::clone(&store))
        .poll_interval(Duration::from_millis(100))
        .retry_policy(policy.clone())
        .destinations(destinations)
        .drain_timeout(drain_timeout)
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "dispatcher_failed", error.to_string()))?;
    let server = Server::new(service.clone(), ServerConfig { dev: true, drain_timeout, ..ServerConfig::default() })
        .dispatcher_monitor(Some(dispatcher.monitor()));

    let mut shown = Ok(());
    let show = Show { service, output, policy, endpoints, began: Instant::now(), types: HashMap::new(), unsettled: 0 };
    let play = async { shown = show.play(arguments.send_for, told).await };
    let process = Process { dispatcher: Some(dispatcher), server: Some((server, listener)) };
    let ended = process.run(signals, play).await?;
    shown?;
    conclude(&*store, ended.interrupted, output).await
}

async fn start_receiver(secret: Secret) -> Result<String, Failure> {
    let receiver = Receiver::bind(0).await.map_err(|error| {
        Failure::new(Exit::Failed, "port_unavailable", format!("cannot listen on 127.0.0.1: {error}"))
    })?;
    let url = receiver.url();
    let behaviour = Behaviour {
        secrets: vec![secret],
        scheme: SignatureScheme::Standard,
        answer: Box::new(flaky),
        delay: Duration::from_millis(20),
    };
    let (arrivals, mut inbox) = mpsc::channel(64);
    tokio::spawn(receiver.serve(behaviour, arrivals));
    tokio::spawn(async move { while inbox.recv().await.is_some() {} });
    Ok(url)
}

/// Fails the first attempts of some events, and every attempt of one.
fn flaky(arrival: &Arrival) -> StatusCode {
    let event_type = arrival.event_type.as_deref().unwrap_or_default();
    let receiver = arrival.path.trim_start_matches('/');
    let failing = EVENTS.iter().find(|(name, troubled, _)| *name == event_type && *troubled == receiver);
    let failing = failing.map_or(0, |(.., failing)| *failing);
    if arrival.attempt.unwrap_or(1) <= failing { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// Registers the endpoints, as an API client would.
async fn register(
    service: &Service,
    receiver: &str,
    secret: &Secret,
) -> Result<HashMap<EndpointId, &'static str>, Failure> {
    let mut endpoints = HashMap::new();
    for (name, event_types) in ENDPOINTS {
        let endpoint = NewEndpoint {
            url: format!("{receiver}{name}"),
            event_types: Some(event_types.iter().map(|pattern| (*pattern).to_owned()).collect()),
            secret: Some(Confidential(secret.reveal())),
            description: Some(format!("the {name} receiver of the demonstration")),
            ..NewEndpoint::default()
        };
        let made = service.create_endpoint(&Caller::default(), endpoint).await?;
        endpoints.insert(made.endpoint.id, name);
    }
    Ok(endpoints)
}

fn introduce(url: &str, receiver: &str, policy: &RetryPolicy, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(&serde_json::json!({ "listening": url, "receiver": receiver }));
    }
    let delays: Vec<String> = policy.delays().map(duration::format).collect();
    output.line(format!("postrider {} serves {}", env!("CARGO_PKG_VERSION"), output.toned(url, Tone::Good)))?;
    for (what, path) in
        [("dashboard", "/"), ("API", "/v1/deliveries"), ("its description", "/docs"), ("metrics", "/metrics")]
    {
        output.line(format!("  {what:<16} {url}{path}"))?;
    }
    output.line(format!(
        "{} endpoints on a flaky receiver, tried again after {}, at most {} attempts\n",
        ENDPOINTS.len(),
        delays.join(", "),
        policy.max_attempts(),
    ))
}

/// The events and the telling of what becomes of them.
struct Show {
    service: Service,
    output: Output,
    policy: RetryPolicy,
    endpoints: HashMap<EndpointId, &'static str>,
    began: Instant,
    types: HashMap<EventId, &'static str>,
    unsettled: usize,
}

impl Show {
    /// Sends events and tells what is announced; if it is not to go on for ever, until everything is settled.
    async fn play(mut self, send_for: Option<Duration>, mut told: Subscription) -> Result<(), Failure> {
        let mut sent = 0;
        let mut next = tokio::time::Instant::now();
        let mut settle_until = None;
        loop {
            // The first round is shown in any case: a shorter one would show no dead letter.
            let sending = sent < EVENTS.len() || send_for.is_none_or(|span| self.began.elapsed() < span);
            if !sending {
                if self.unsettled == 0 {
                    return Ok(());
                }
                settle_until.get_or_insert_with(|| tokio::time::Instant::now() + AT_MOST);
            }
            let wake_at = settle_until.unwrap_or(next);
            tokio::select! {
                () = tokio::time::sleep_until(wake_at) => {
                    if !sending {
                        return Err(Failure::new(Exit::Failed, "demo_stuck", "the deliveries were not settled in time"));
                    }
                    let (event_type, ..) = EVENTS[sent % EVENTS.len()];
                    sent += 1;
                    self.send(event_type, sent).await?;
                    next += if sent < EVENTS.len() { BETWEEN_FIRST_EVENTS } else { BETWEEN_EVENTS };
                }
                heard = told.next() => match heard {
                    Some(Heard::Announcement(announcement)) => self.tell(&announcement)?,
                    Some(Heard::Missed(_)) => {}
                    None => return Ok(()),
                },
            }
        }
    }

    async fn send(&mut self, event_type: &'static str, number: usize) -> Result<(), Failure> {
        let payload = serde_json::value::to_raw_value(&serde_json::json!({ "number": number }));
        let payload = payload.expect("a number is JSON");
        let enqueued = self.service.enqueue(&Caller::default(), EventRequest::new(event_type, payload)).await?;
        self.unsettled += enqueued.deliveries.len();
        if let Some(id) = enqueued.id {
            self.types.insert(id, event_type);
        }
        if self.output.json {
            return Ok(());
        }
        let count = enqueued.deliveries.len();
        let note = if count == 1 { "to 1 endpoint".to_owned() } else { format!("to {count} endpoints") };
        self.line("sent", Tone::Faint, event_type, &note)
    }

    fn tell(&mut self, announcement: &Announcement) -> Result<(), Failure> {
        if matches!(announcement.fact, Fact::Delivered | Fact::Dead | Fact::Cancelled) {
            self.unsettled = self.unsettled.saturating_sub(1);
        }
        if self.output.json {
            return self.output.json_line(announcement);
        }
        let event_type = self.types.get(&announcement.event_id).copied().unwrap_or("?");
        let endpoint = announcement.endpoint_id.and_then(|id| self.endpoints.get(&id).copied()).unwrap_or("?");
        let attempt = announcement.attempt_count;
        let next = self.policy.scheduled_delay(attempt).map(duration::format).unwrap_or_default();
        let (word, tone, note) = match announcement.fact {
            Fact::Delivered => ("delivered", Tone::Good, format!("attempt {attempt}")),
            Fact::Failed => ("failed", Tone::Waiting, format!("attempt {attempt}, the next in {next}")),
            Fact::Dead => ("dead", Tone::Bad, format!("attempt {attempt} was the last")),
            other => (other.as_str(), Tone::Faint, String::new()),
        };
        self.line(word, tone, event_type, &format!("to {endpoint:<8} {note}"))
    }

    fn line(&self, word: &str, tone: Tone, event_type: &str, note: &str) -> Result<(), Failure> {
        let seconds = self.began.elapsed().as_secs_f64();
        let word = self.output.toned(&format!("{word:<9}"), tone);
        self.output.line(format!("{seconds:>6.2}s  {word}  {event_type:<17} {note}").trim_end())
    }
}

async fn conclude(store: &dyn Store, interrupted: bool, output: Output) -> Result<(), Failure> {
    let latest = PageRequest::new(10, None)?;
    let page = store.deliveries(&postrider::DeliveryFilter::default(), &latest).await?;
    let overview = store.overview(None).await?;
    if output.json {
        return output.json_line(&serde_json::json!({ "overview": overview, "data": page.items }));
    }
    output.line("\nThe latest deliveries:")?;
    deliveries::table(&page.items, Timestamp::now(), output)?;
    let unsettled = overview.pending + overview.failed;
    let and_open = if unsettled > 0 { format!(", {unsettled} not settled yet") } else { String::new() };
    output.line(format!("\n{} delivered, {} dead{and_open}.", overview.delivered, overview.dead))?;
    let ended = if interrupted { "Interrupted. " } else { "" };
    output.line(format!(
        "{ended}Dead letters would wait for `postrider dead retry`. This database was a temporary one, and is gone.\n\
         Next: `postrider serve`, or `postrider listen` in one terminal, which says how to send to it from another.",
    ))
}
