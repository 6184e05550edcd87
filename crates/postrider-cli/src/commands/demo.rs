//! `postrider demo`: something to look at in ten seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use http::StatusCode;
use jiff::Timestamp;
use postrider::{
    Admission, Announcement, DestinationPolicy, Dispatcher, EventId, Fact, Feed, Heard, NewEvent, PageRequest,
    RetryPolicy, Secret, SignatureScheme, Store, Subscription,
};
use postrider_sqlite::SqliteStore;
use tokio::sync::{mpsc, oneshot};

use crate::commands::{Context, deliveries};
use crate::failure::{Exit, Failure};
use crate::output::{Output, Tone};
use crate::receiver::{Arrival, Behaviour, Receiver};
use crate::signals::Signals;
use postrider::duration;

/// Show a whole life of deliveries in a few seconds, with nothing to set up
///
/// A temporary SQLite database, a receiver on loopback that fails now and then, a few events and a dispatcher. Facts are
/// printed as they are announced: deliveries, failures that are tried again, one dead letter. Nothing is left behind.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// The events, each with the number of attempts that its receiver lets fail.
const EVENTS: [(&str, u32); 8] = [
    ("invoice.sent", 0),
    ("invoice.paid", 1),
    ("customer.created", 0),
    ("report.ready", 2),
    ("invoice.overdue", u32::MAX),
    ("customer.renamed", 0),
    ("invoice.paid", 1),
    ("report.archived", 0),
];

const SCHEDULE: [Duration; 3] = [Duration::from_millis(400), Duration::from_millis(800), Duration::from_secs(2)];
const BETWEEN_EVENTS: Duration = Duration::from_millis(150);
const AT_MOST: Duration = Duration::from_secs(20);

pub(crate) async fn run(_arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let mut signals = Signals::catch()?;
    let folder = tempfile::tempdir().map_err(|error| {
        Failure::new(Exit::Failed, "temporary_folder_failed", format!("cannot make a temporary folder: {error}"))
    })?;
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"])?;
    let admission = Admission { destinations: destinations.clone(), ..Admission::default() };
    let store = SqliteStore::open(folder.path().join("demo.db"))?.with_admission(admission);
    store.migrate().await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let secret = Secret::generate();
    let url = start_receiver(secret.clone()).await?;
    let policy = RetryPolicy::schedule(SCHEDULE, 4)?;
    introduce(&url, &policy, output)?;

    let feed = Feed::start(Arc::clone(&store)).await?;
    let told = feed.subscribe(postrider::DEFAULT_TOPIC);
    let dispatcher = Dispatcher::builder(Arc::clone(&store))
        .poll_interval(Duration::from_millis(100))
        .retry_policy(policy.clone())
        .signing_secrets(vec![secret])
        .destinations(destinations)
        .drain_timeout(Duration::from_secs(2))
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "dispatcher_failed", error.to_string()))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let dispatching = tokio::spawn(dispatcher.run(async move {
        // Told to stop, or left alone because the demonstration broke off: either way it is over.
        let _ = stopped.await;
    }));

    let show = Show { store: Arc::clone(&store), output, policy, began: Instant::now(), types: HashMap::new() };
    let interrupted = tokio::select! {
        shown = tokio::time::timeout(AT_MOST, show.play(&url, told)) => {
            shown.map_err(|_| Failure::new(Exit::Failed, "demo_stuck", "the deliveries were not settled in time"))??;
            false
        }
        _ = signals.next() => true,
    };
    drop(stop);
    let ended = dispatching.await;
    ended.map_err(|error| Failure::new(Exit::Failed, "dispatcher_failed", error.to_string()))??;
    conclude(&*store, interrupted, output).await
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
    let failing = EVENTS.iter().find(|(name, _)| *name == event_type).map_or(0, |(_, failing)| *failing);
    if arrival.attempt.unwrap_or(1) <= failing { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

fn introduce(url: &str, policy: &RetryPolicy, output: Output) -> Result<(), Failure> {
    if output.json {
        return Ok(());
    }
    let delays: Vec<String> = policy.delays().map(duration::format).collect();
    output.line(format!(
        "{} events to a flaky receiver on {url}, tried again after {}, at most {} attempts\n",
        EVENTS.len(),
        delays.join(", "),
        policy.max_attempts(),
    ))
}

/// The events and the telling of what becomes of them.
struct Show {
    store: Arc<dyn Store>,
    output: Output,
    policy: RetryPolicy,
    began: Instant,
    types: HashMap<EventId, &'static str>,
}

impl Show {
    /// Sends the events, and tells what is announced until all are settled.
    async fn play(mut self, url: &str, mut told: Subscription) -> Result<(), Failure> {
        let mut waiting = EVENTS.iter();
        let mut unsettled = EVENTS.len();
        let mut ticks = tokio::time::interval(BETWEEN_EVENTS);
        while unsettled > 0 {
            tokio::select! {
                _ = ticks.tick(), if waiting.len() > 0 => {
                    if let Some((event_type, _)) = waiting.next() {
                        self.send(event_type, url).await?;
                    }
                }
                heard = told.next() => match heard {
                    Some(Heard::Announcement(announcement)) => {
                        self.tell(&announcement)?;
                        if matches!(announcement.fact, Fact::Delivered | Fact::Dead) {
                            unsettled -= 1;
                        }
                    }
                    Some(Heard::Missed(_)) => {}
                    None => break,
                },
            }
        }
        Ok(())
    }

    async fn send(&mut self, event_type: &'static str, url: &str) -> Result<(), Failure> {
        let number = self.types.len() + 1;
        let event = NewEvent::new(event_type, format!(r#"{{"number":{number}}}"#)).to(url);
        let enqueued = self.store.enqueue(vec![event]).await?;
        let id = enqueued.first().and_then(postrider::Enqueued::event_id).expect("one event gives one result");
        self.types.insert(id, event_type);
        if self.output.json {
            return Ok(());
        }
        self.line("sent", Tone::Faint, event_type, "")
    }

    fn tell(&self, announcement: &Announcement) -> Result<(), Failure> {
        if self.output.json {
            return self.output.json_line(announcement);
        }
        let event_type = self.types.get(&announcement.event_id).copied().unwrap_or("?");
        let attempt = announcement.attempt_count;
        let next = self.policy.scheduled_delay(attempt).map(duration::format).unwrap_or_default();
        let (word, tone, note) = match announcement.fact {
            Fact::Delivered => ("delivered", Tone::Good, format!("attempt {attempt}")),
            Fact::Failed => ("failed", Tone::Waiting, format!("attempt {attempt}, the next in {next}")),
            Fact::Dead => ("dead", Tone::Bad, format!("attempt {attempt} was the last")),
            other => (other.as_str(), Tone::Faint, String::new()),
        };
        self.line(word, tone, event_type, &note)
    }

    fn line(&self, word: &str, tone: Tone, event_type: &str, note: &str) -> Result<(), Failure> {
        let seconds = self.began.elapsed().as_secs_f64();
        let word = self.output.toned(&format!("{word:<9}"), tone);
        self.output.line(format!("{seconds:>6.2}s  {word}  {event_type:<17} {note}").trim_end())
    }
}

async fn conclude(store: &dyn Store, interrupted: bool, output: Output) -> Result<(), Failure> {
    let page = store.deliveries(&postrider::DeliveryFilter::default(), &PageRequest::default()).await?;
    if output.json {
        return output.json_line(&serde_json::json!({ "data": page.items }));
    }
    output.line("")?;
    deliveries::table(&page.items, Timestamp::now(), output)?;
    if interrupted {
        return output.line("\nInterrupted. The database was a temporary one, and is gone.");
    }
    output.line(
        "\nThe dead letter would wait for `postrider dead retry`. This database was a temporary one, and is gone.\n\
         Next: `postrider listen` in one terminal, and it says how to send to it from another.",
    )
}
