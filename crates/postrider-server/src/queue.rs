//! Group commit: enqueues that arrive while others are being written are written together, in one transaction.
//!
//! There is no task that waits for work. Whoever puts an event into the queue starts a writer if fewer than
//! [`WRITERS`] are at work, and a writer ends when it finds the queue empty. So a lone event is written at once, and the
//! more arrive, the larger the batches become. Everyone is answered after the commit of their batch, by its writer: a
//! caller that goes away in the meantime does not disturb anybody.
//!
//! An application may hold an idempotency key or a subject in a transaction that it does not end. A batch that waited for
//! that in vain is written one by one, so that only the event that needs the name is sent away; and for a moment whoever comes
//! with the same name is sent away at once.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use postrider::{EnqueueError, Enqueued, NewEvent, Store, StoreError, StoreErrorCode};
use tokio::sync::{Notify, oneshot};

use crate::api::Problem;
use crate::metrics::Metrics;

/// While one batch is committed, another one can be prepared. More than two only make the batches smaller.
const WRITERS: usize = 2;

/// How many are written one by one at a time. Each may wait, and has a connection while it does.
const ONE_BY_ONE: usize = 4;

/// How long a name that somebody holds is not asked for again.
const HELD_FOR: Duration = Duration::from_secs(2);

/// How much is gathered.
#[derive(Debug, Clone)]
pub struct QueueSettings {
    /// At most this many wait to be written; who comes then is sent away.
    pub most_waiting: usize,
    /// At most this many bytes of payload wait to be written.
    pub most_waiting_bytes: usize,
    /// At most this many are written together.
    pub most_per_batch: usize,
    /// No more are added to a batch that has this many bytes of payload.
    pub most_batch_bytes: usize,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            most_waiting: 4_096,
            most_waiting_bytes: 64 * 1024 * 1024,
            most_per_batch: 200,
            most_batch_bytes: 4 * 1024 * 1024,
        }
    }
}

type Answer = Result<Enqueued, Problem>;

/// The queue before a store.
#[derive(Debug, Clone)]
pub(crate) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    settings: QueueSettings,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    writers: usize,
    /// Names that somebody else's transaction holds, and since when that is known.
    held: HashMap<String, Instant>,
}

#[derive(Debug)]
struct Waiting {
    event: NewEvent,
    answer: oneshot::Sender<Answer>,
}

impl Queue {
    pub(crate) fn new(store: Arc<dyn Store>, settings: QueueSettings, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared { store, settings, metrics, state: Mutex::default(), emptied: Notify::new() }))
    }

    /// Writes the event, together with whatever else is waiting. It must have passed admission.
    pub(crate) async fn enqueue(&self, event: NewEvent) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.0.put(Waiting { event, answer })? {
            tokio::spawn(write_all(Arc::clone(&self.0)));
        }
        answered.await.unwrap_or_else(|_| Err(Problem::new(500, "internal", "the event's writer has failed")))
    }

    /// Returns when nothing waits and nothing is being written.
    pub(crate) async fn flushed(&self) {
        loop {
            let emptied = self.0.emptied.notified();
            if self.0.lock().writers == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }

    /// Returns whether a writer is to be started for it.
    fn put(&self, waiting: Waiting) -> Result<bool, Problem> {
        let bytes = waiting.event.payload.len();
        let mut state = self.lock();
        state.held.retain(|_, since| since.elapsed() < HELD_FOR);
        if names_of(&waiting.event).iter().any(|name| state.held.contains_key(name)) {
            return Err(StoreError::new(StoreErrorCode::Contended, "").into());
        }
        // One that is larger than the bound is taken when nothing else waits.
        let full = state.waiting.len() >= self.settings.most_waiting
            || (!state.waiting.is_empty() && state.waiting_bytes + bytes > self.settings.most_waiting_bytes);
        if full {
            drop(state);
            self.metrics.queue_refused.inc();
            return Err(Problem::new(503, "queue_full", "more events arrive than can be written")
                .hint("try again after the time in Retry-After, or send events in batches"));
        }
        state.waiting_bytes += bytes;
        state.waiting.push_back(waiting);
        self.metrics.queue_depth.inc();
        let start = state.writers < WRITERS;
        state.writers += usize::from(start);
        Ok(start)
    }

    fn is_held(&self, names: &[String]) -> bool {
        let state = self.lock();
        names.iter().any(|name| state.held.contains_key(name))
    }

    fn remember_held(&self, names: Vec<String>) {
        let now = Instant::now();
        self.lock().held.extend(names.into_iter().map(|name| (name, now)));
    }

    /// What is to be written next. Whoever gets none has ended as a writer.
    fn take(&self) -> Option<Vec<Waiting>> {
        let mut state = self.lock();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.settings.most_per_batch && bytes < self.settings.most_batch_bytes {
            let Some(waiting) = state.waiting.pop_front() else { break };
            bytes += waiting.event.payload.len();
            batch.push(waiting);
        }
        state.waiting_bytes -= bytes;
        if batch.is_empty() {
            state.writers -= 1;
            if state.writers == 0 {
                self.emptied.notify_waiters();
            }
            return None;
        }
        self.metrics.queue_depth.dec_by(i64::try_from(batch.len()).unwrap_or(i64::MAX));
        Some(batch)
    }
}

async fn write_all(shared: Arc<Shared>) {
    while let Some(batch) = shared.take() {
        // A batch that makes the store panic must not take the rest of the queue with it.
        if AssertUnwindSafe(write(&shared, batch)).catch_unwind().await.is_err() {
            tracing::error!("writing a batch of events has panicked");
        }
    }
}

async fn write(shared: &Shared, batch: Vec<Waiting>) {
    let (events, answers): (Vec<NewEvent>, Vec<_>) =
        batch.into_iter().map(|waiting| (waiting.event, waiting.answer)).unzip();
    #[expect(clippy::cast_precision_loss, reason = "a batch is small")]
    shared.metrics.queue_batch.observe(events.len() as f64);
    let alone = events.len() == 1;
    // Kept for the case that they must be written one by one. Payloads are shared, not copied.
    let kept = if alone { Vec::new() } else { events.clone() };
    let names = if alone { names_of(&events[0]) } else { Vec::new() };
    match shared.store.enqueue_each(events).await {
        Ok(results) => {
            for (result, answer) in results.into_iter().zip(answers) {
                // Whoever has gone away does not want the answer.
                let _ = answer.send(result.map_err(tell));
            }
        }
        Err(error) if alone || (error.code.is_transient() && error.code != StoreErrorCode::Contended) => {
            log(&error, answers.len());
            if error.code == StoreErrorCode::Contended {
                shared.remember_held(names);
            }
            for answer in answers {
                let _ = answer.send(Err(Problem::from(StoreError::new(error.code, ""))));
            }
        }
        Err(error) => {
            log(&error, answers.len());
            write_one_by_one(shared, kept, answers).await;
        }
    }
}

/// The store cannot write the batch. If that is because of one event, the others survive.
async fn write_one_by_one(shared: &Shared, events: Vec<NewEvent>, answers: Vec<oneshot::Sender<Answer>>) {
    let each = stream::iter(events.into_iter().zip(answers)).map(|(event, answer)| async move {
        let _ = answer.send(write_one(shared, event).await.map_err(tell));
    });
    each.buffer_unordered(ONE_BY_ONE).collect::<()>().await;
}

async fn write_one(shared: &Shared, event: NewEvent) -> Result<Enqueued, EnqueueError> {
    let names = names_of(&event);
    // Another one of the same batch may have waited for the same name in vain.
    if shared.is_held(&names) {
        return Err(StoreError::new(StoreErrorCode::Contended, "somebody holds its name").into());
    }
    match shared.store.enqueue_each(vec![event]).await {
        Ok(mut results) => results.pop().unwrap_or_else(|| {
            Err(StoreError::new(StoreErrorCode::Internal, "the store has not answered for the event").into())
        }),
        Err(error) => {
            if error.code == StoreErrorCode::Contended {
                shared.remember_held(names);
            }
            Err(error.into())
        }
    }
}

/// What an event may have to wait for.
fn names_of(event: &NewEvent) -> Vec<String> {
    let tenant = &event.tenant;
    let key = event.idempotency_key.as_ref().map(|key| format!("key {tenant} {key}"));
    let subject = event.once.as_ref().map(|once| format!("subject {tenant} {}", once.subject));
    key.into_iter().chain(subject).collect()
}

fn tell(error: EnqueueError) -> Problem {
    if let EnqueueError::Store(error) = &error {
        log(error, 1);
    }
    error.into()
}

fn log(error: &StoreError, events: usize) {
    tracing::warn!(code = %error.code, events, "the store failed to enqueue: {}", error.message);
}
