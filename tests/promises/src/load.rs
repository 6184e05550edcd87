//! Events by the thousand, by every way in, and a ledger of what became of each enqueue as its caller saw it.
//!
//! Each event has a number, which stands in its payload. Where the caller has a transaction of its own, it also writes
//! the number into a table of its own there: the *witness*. When the answer to a commit is lost, the caller does not know what
//! became of it, but the witness does: it is there exactly if the event must be.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use postrider::{Admission, DestinationPolicy, NewEvent};
use postrider_postgres::PostgresStore;
use postrider_sqlite::SqliteStore;

use crate::canary;
use crate::dice::Dice;

/// What became of an enqueue, as far as its caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was told that the event is stored.
    Acknowledged,
    /// It took it back, or died before it could commit.
    RolledBack,
    /// It got no answer.
    Unknown,
}

/// How an event was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In a transaction of the caller's own, with a witness.
    Transaction,
    /// Otherwise.
    Request,
}

/// One enqueue.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// By which way.
    pub way: Way,
    /// With which end.
    pub fate: Fate,
}

/// Events from this number on have a payload that ends whoever sends it, where the place `marked_payload` is armed.
pub const POISON: u64 = 1_000_000_000;

/// The payload of an event.
pub fn payload(number: u64) -> String {
    let mark = if number >= POISON { "postrider-ends-here" } else { "harmless" };
    // The order of the keys and the fraction of nothing are what some parsers would rewrite.
    format!(r#"{{"z":"{}","number":{number},"mark":"{mark}","a":1.0}}"#, canary::PAYLOAD)
}

/// Which event has this payload, byte for byte.
pub fn number_of(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (_, rest) = text.split_once(r#""number":"#)?;
    let number = rest.split(',').next()?.parse().ok()?;
    (payload(number) == text).then_some(number)
}

/// The rules for whoever enqueues beside the processes under trial: loopback is open.
pub fn loopback() -> Admission {
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).expect("a network");
    Admission { destinations, ..Admission::default() }
}

/// The load: who enqueues shares it.
#[derive(Debug)]
pub struct Load {
    destination: String,
    next: AtomicU64,
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// Where the HTTP API is at the moment, if it is anywhere.
    api: Mutex<Option<String>>,
    over: AtomicBool,
}

impl Load {
    /// Of events to this URL.
    pub fn new(destination: &str) -> Self {
        Self {
            destination: destination.to_owned(),
            next: AtomicU64::new(1),
            entries: Mutex::default(),
            api: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// What became of each enqueue.
    pub fn ledger(&self) -> BTreeMap<u64, Entry> {
        self.entries.lock().unwrap().clone()
    }

    /// How many were acknowledged by now.
    pub fn acknowledged(&self) -> usize {
        self.entries.lock().unwrap().values().filter(|entry| entry.fate == Fate::Acknowledged).count()
    }

    /// Where the events go.
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Says where the HTTP API is from now on.
    pub fn api_is_at(&self, url: Option<String>) {
        *self.api.lock().unwrap() = url;
    }

    /// Whether somebody knows where the HTTP API is.
    pub fn has_api(&self) -> bool {
        self.api.lock().unwrap().is_some()
    }

    /// No new events from now on. What is under way ends.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A new event, which nobody knows anything of yet.
    pub fn begin(&self, way: Way) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.entries.lock().unwrap().insert(number, Entry { way, fate: Fate::Unknown });
        number
    }

    /// The same, of an event with a payload that ends whoever sends it.
    pub fn begin_poison(&self) -> u64 {
        let number = POISON + self.begin(Way::Request);
        let mut entries = self.entries.lock().unwrap();
        entries.remove(&(number - POISON));
        entries.insert(number, Entry { way: Way::Request, fate: Fate::Unknown });
        number
    }

    /// Writes down how it ended.
    pub fn settle(&self, number: u64, fate: Fate) {
        if let Some(entry) = self.entries.lock().unwrap().get_mut(&number) {
            entry.fate = fate;
        }
    }

    /// The event of a number.
    pub fn event(&self, number: u64) -> NewEvent {
        NewEvent::new("load.made", payload(number)).to(&self.destination)
    }

    /// Enqueues by the library and by the SQL function, in transactions of its own, some of which it takes back.
    pub async fn by_transactions(&self, store: PostgresStore, mut dice: Dice) {
        while !self.is_over() {
            let number = self.begin(Way::Transaction);
            let commits = !dice.one_in(5);
            let by_function = dice.one_in(2);
            match self.in_transaction(&store, number, commits, by_function).await {
                Ok(()) if commits => self.settle(number, Fate::Acknowledged),
                Ok(()) => self.settle(number, Fate::RolledBack),
                // The database is away, or went away meanwhile.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            tokio::time::sleep(dice.between(Duration::from_millis(2), Duration::from_millis(20))).await;
        }
    }

    async fn in_transaction(
        &self,
        store: &PostgresStore,
        number: u64,
        commits: bool,
        by_function: bool,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let key = i64::try_from(number)?;
        let mut transaction = store.pool().begin().await?;
        sqlx::query("insert into trial.witness values ($1)").bind(key).execute(&mut *transaction).await?;
        if by_function {
            sqlx::query("select postrider.enqueue('load.made', $1::text, $2)")
                .bind(payload(number))
                .bind(&self.destination)
                .execute(&mut *transaction)
                .await?;
        } else {
            store.enqueue_in(&mut transaction, self.event(number)).await?;
        }
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(())
    }

    /// The same on an SQLite file, where a transaction that is taken back is one that returns an error.
    pub async fn by_closures(&self, store: SqliteStore, mut dice: Dice) {
        while !self.is_over() {
            let number = self.begin(Way::Transaction);
            let commits = !dice.one_in(5);
            let event = self.event(number);
            let result = store
                .transaction(move |transaction| {
                    let key = i64::try_from(number)?;
                    transaction.connection().execute("insert into trial_witness values (?1)", [key])?;
                    transaction.enqueue(event)?;
                    if commits { Ok(()) } else { Err(Box::<dyn std::error::Error + Send + Sync>::from("taken back")) }
                })
                .await;
            match result {
                Ok(()) => self.settle(number, Fate::Acknowledged),
                Err(_) if !commits => self.settle(number, Fate::RolledBack),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            tokio::time::sleep(dice.between(Duration::from_millis(2), Duration::from_millis(20))).await;
        }
    }

    /// Enqueues over HTTP. Whoever gets no answer asks again under the same key, until there is one.
    pub async fn by_requests(&self, mut dice: Dice) {
        // Whoever was first has chosen, and chose the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
        while !self.is_over() {
            let number = self.begin(Way::Request);
            while !self.post(&client, number).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
                if self.is_over() {
                    return;
                }
            }
            self.settle(number, Fate::Acknowledged);
            tokio::time::sleep(dice.between(Duration::from_millis(2), Duration::from_millis(20))).await;
        }
    }

    async fn post(&self, client: &reqwest::Client, number: u64) -> bool {
        let Some(api) = self.api.lock().unwrap().clone() else { return false };
        let body =
            format!(r#"{{"type":"load.made","destination_url":"{}","payload":{}}}"#, self.destination, payload(number));
        let request = client.post(format!("{api}/v1/events")).header("content-type", "application/json");
        let request = request.header("idempotency-key", format!("load/{number}")).body(body);
        let Ok(answer) = request.send().await else { return false };
        match answer.status().as_u16() {
            200 | 202 => true,
            500.. => false,
            // A refusal is a fault of the load or of the server; the ledger keeps it as unknown, and it is seen there.
            status => panic!("the server refuses an event with {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_in_its_payload_and_in_no_other_spelling_of_it() {
        assert_eq!(number_of(payload(42).as_bytes()), Some(42));
        assert_eq!(number_of(payload(42).replace("1.0", "1").as_bytes()), None);
        assert_eq!(number_of(b"{}"), None);
    }
}
