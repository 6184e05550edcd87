//! `postrider-bench`: how much of the raw limit is left once every delivery is leased, settled and recorded.
//!
//! The raw limit is the same HTTP client posting the same bytes to the same sink, with no store. Both are measured in one
//! run, because absolute numbers say more about the machine than about us.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod sink;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Parser, Subcommand};
use http::HeaderMap;
use postrider::{
    Admission, DeliveryFilter, DeliveryStatus, DestinationPolicy, Dispatcher, NewEvent, Post, Secret, Store, Transport,
    TransportConfig,
};
use postrider_postgres::PostgresStore;
use postrider_sqlite::SqliteStore;
use sink::Sink;

#[derive(Parser)]
#[command(about = "Measures Postrider as ratios against the limit of the same client on the same machine")]
struct Arguments {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Drain a backlog, and compare with the raw limit.
    Drain {
        /// `postgres://…` (an empty database), or `sqlite` for a temporary file.
        #[arg(long, default_value = "sqlite")]
        database: String,
        /// How many deliveries.
        #[arg(long, default_value_t = 50_000)]
        events: usize,
        /// Over how many destinations.
        #[arg(long, default_value_t = 16)]
        lanes: usize,
    },
    /// The receiver; started by the others.
    #[command(hide = true)]
    Sink,
}

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    match Arguments::parse().command {
        What::Sink => Ok(sink::serve()?),
        What::Drain { database, events, lanes } => {
            tokio::runtime::Runtime::new()?.block_on(drain(&database, events, lanes))
        }
    }
}

/// A kilobyte of JSON.
fn payload() -> Bytes {
    Bytes::from(format!("{{\"text\":\"{}\"}}", "x".repeat(1000)))
}

fn destinations() -> Result<DestinationPolicy, Failure> {
    Ok(DestinationPolicy::default().allow_networks(["127.0.0.0/8"])?)
}

async fn drain(database: &str, events: usize, lanes: usize) -> Result<(), Failure> {
    let sinks = (0..lanes).map(|_| Sink::start()).collect::<Result<Vec<_>, _>>()?;
    let urls: Vec<String> = sinks.iter().map(|sink| sink.url.clone()).collect();
    let raw = raw_limit(&urls, events).await?;
    println!("raw limit        {raw:>9.0} POST/s");

    let folder = tempfile::tempdir()?;
    let admission = Admission { destinations: destinations()?, ..Admission::default() };
    let store: Arc<dyn Store> = if database == "sqlite" {
        let store = SqliteStore::open(folder.path().join("bench.db"))?.with_admission(admission);
        store.migrate().await?;
        Arc::new(store)
    } else {
        let store = PostgresStore::connect(database).await?.with_admission(admission);
        store.migrate().await?;
        Arc::new(store)
    };
    let enqueued = enqueue(&*store, &urls, events).await?;
    println!("enqueue in 1000s {enqueued:>9.0} events/s");

    let drained = deliver(store, events).await?;
    println!("drain            {drained:>9.0} deliveries/s");
    println!("ratio            {:>9.2} of the raw limit", drained / raw);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn per_second(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

async fn raw_limit(urls: &[String], posts: usize) -> Result<f64, Failure> {
    let config = TransportConfig { destinations: destinations()?, ..TransportConfig::default() };
    let transport = Transport::new(config)?;
    let (next, body, urls) = (Arc::new(AtomicU64::new(0)), payload(), Arc::new(urls.to_vec()));
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..256 {
        let (transport, next, body, urls) = (transport.clone(), Arc::clone(&next), body.clone(), Arc::clone(&urls));
        clients.spawn(async move {
            loop {
                let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                if number >= posts {
                    return true;
                }
                let (url, headers) = (urls[number % urls.len()].clone(), HeaderMap::new());
                let post = Post { url, headers, body: body.clone(), timeout: Duration::from_secs(15) };
                if !transport.post(post).await.is_success() {
                    return false;
                }
            }
        });
    }
    let all_succeeded = clients.join_all().await.into_iter().all(|succeeded| succeeded);
    if !all_succeeded {
        return Err("the sink refused a request".into());
    }
    Ok(per_second(posts, started))
}

async fn enqueue(store: &dyn Store, urls: &[String], events: usize) -> Result<f64, Failure> {
    let (started, body) = (Instant::now(), payload());
    for first in (0..events).step_by(1000) {
        let numbers = first..events.min(first + 1000);
        let batch = numbers.map(|number| NewEvent::new("bench.event", body.clone()).to(&urls[number % urls.len()]));
        store.enqueue(batch.collect()).await?;
    }
    Ok(per_second(events, started))
}

async fn deliver(store: Arc<dyn Store>, events: usize) -> Result<f64, Failure> {
    let dispatcher = Dispatcher::builder(Arc::clone(&store))
        .destinations(destinations()?)
        .signing_secrets(vec![Secret::generate()])
        .build()?;
    let started = Instant::now();
    let monitor = dispatcher.monitor();
    let drained = async move {
        let mut pause = tokio::time::interval(Duration::from_millis(5));
        while monitor.totals().delivered < events as u64 {
            pause.tick().await;
        }
    };
    dispatcher.run(drained).await?;
    let rate = per_second(events, started);
    let filter = DeliveryFilter { status: Some(DeliveryStatus::Delivered), ..DeliveryFilter::default() };
    let delivered = store.count_deliveries(&filter).await?;
    if delivered != events as u64 {
        return Err(format!("{delivered} of {events} were delivered").into());
    }
    Ok(rate)
}
