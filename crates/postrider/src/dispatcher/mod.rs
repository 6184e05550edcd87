//! The dispatcher: takes due deliveries under leases, makes one attempt each, settles the results.
//!
//! # Its parts
//!
//! ```text
//!             claim loop ──claims──▶ flights ──results──▶ settler
//!                 ▲                     │                    │
//!      wake-ups, room                held leases ◀───────────┘
//!                                       ▲
//!          tender (promote, recover)    └── heartbeat (renew)
//!          tidier (retain)
//! ```
//!
//! - The **claim loop** asks for as many deliveries as there are free slots, and for as many more as will begin within a few
//!   hundredths of a second. A slot is taken while an attempt is under way. Lanes take turns, and no lane has more under way
//!   than its limit: a destination that hangs fills its own slots and nobody else's, and has nothing in line.
//! - A **flight** is one attempt: sign, POST, judge. It holds no transaction and no lock. A task of the **crew** makes one after
//!   the other; what has no slot yet waits in the line of its lane.
//! - The **pace** is how many of the slots are used: all of them, unless an eighth of them ends as many.
//! - **Recall** gives back what has been in line for too long, because receivers have slowed down.
//! - A **suspect** is a delivery that was abandoned again and again, and may be what crashes its dispatchers: it is sent
//!   while nothing else is under way, so that it can take nobody down with it.
//! - The **settler** hands results to the store in batches, and repeats a batch whose answer was lost.
//! - The **heartbeat** renews every lease that is held, from the claim until its settle returns, in one call per tick.
//!   A lease that the store no longer knows is lost: its attempt goes on, and its settle will change nothing.
//! - The **tender** makes scheduled deliveries ready when they are due, and takes back what crashed workers left.
//! - The **tidier** removes what is old and done, and cancels what was left of removed endpoints.
//!
//! # What keeps it safe
//!
//! Nothing here decides who may settle: the lease row in the store does ([`lease`](crate::lease)). The clocks here are
//! monotonic and local; they only stop this process from starting work that it might no longer be entitled to.

mod builder;
mod care;
mod claim_loop;
mod crew;
mod exhaustion;
mod flight;
mod heartbeat;
mod held;
mod lanes;
mod pace;
mod recall;
mod request;
mod settler;
mod summary;
mod suspects;
mod tender;
mod tidier;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

pub use builder::{DispatcherBuilder, InvalidDispatcher};
pub use summary::Totals;

use crate::lease::{Lease, WorkerId};
use crate::store::{Store, StoreError};
use crate::transport::Transport;
use builder::Settings;
use claim_loop::ClaimLoop;
use crew::Crew;
use exhaustion::Exhaustion;
use held::{HELD_PER_SLOT, HeldLeases, RenewalEnd};

/// How long a store may take for the last calls of a dispatcher that stops.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a failing store is left alone, at most.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Delivers what is due, until it is told to stop.
///
/// ```no_run
/// # async fn example(store: std::sync::Arc<dyn postrider::Store>) -> Result<(), Box<dyn std::error::Error>> {
/// use postrider::{Dispatcher, Secret};
///
/// let dispatcher = Dispatcher::builder(store)
///     .signing_secrets(vec![Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?])
///     .build()?;
/// let totals = dispatcher.run(async { tokio::signal::ctrl_c().await.unwrap() }).await?;
/// println!("{} delivered", totals.delivered);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Dispatcher {
    shared: Arc<Shared>,
}

/// What the dispatcher's parts have in common.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    transport: Transport,
    settings: Settings,
    held: HeldLeases,
    totals: Mutex<Totals>,
    /// Told when deliveries have become ready in this process.
    ready: Notify,
    /// Told when something was scheduled that is due before the next poll.
    due_soon: Notify,
    /// Held while somebody looks after an endpoint that nothing may be sent to.
    caring: tokio::sync::Mutex<()>,
    left_alone: care::LeftAlone,
    exhaustion: Exhaustion,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.lock().expect("no code panics while it holds this lock"));
    }

    fn totals(&self) -> Totals {
        *self.totals.lock().expect("no code panics while it holds this lock")
    }

    /// Counts and tells a failure of the store.
    fn store_failed(&self, doing: &'static str, error: &StoreError) {
        self.count(|totals| totals.errors += 1);
        tracing::warn!(
            worker_id = %self.settings.worker,
            code = %error.code,
            "the store failed to {doing}: {}",
            error.message
        );
    }
}

impl Dispatcher {
    /// Begins to put a dispatcher together.
    pub fn builder(store: Arc<dyn Store>) -> DispatcherBuilder {
        DispatcherBuilder::new(store)
    }

    fn assemble(store: Arc<dyn Store>, transport: Transport, settings: Settings) -> Self {
        let held = HeldLeases::new(settings.max_in_flight);
        let totals = Mutex::default();
        let (ready, due_soon) = (Notify::new(), Notify::new());
        let (caring, exhaustion) = (tokio::sync::Mutex::default(), Exhaustion::default());
        let left_alone = care::LeftAlone::default();
        let shared =
            Shared { store, transport, settings, held, totals, ready, due_soon, caring, left_alone, exhaustion };
        Self { shared: Arc::new(shared) }
    }

    /// The name under which it holds leases.
    pub fn worker_id(&self) -> &WorkerId {
        &self.shared.settings.worker
    }

    /// How often it renews them.
    pub fn heartbeat(&self) -> Duration {
        self.shared.settings.term.heartbeat()
    }

    /// What can be asked while it runs.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Dispatches until `shutdown` completes. Then it claims nothing new, waits up to the drain timeout for the attempts
    /// under way, settles them, and gives the rest back uncharged.
    ///
    /// Trouble with the store while it runs is told in the log and waited out. The error is one that prevents the start.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Totals, StoreError> {
        let shared = self.shared;
        if !shared.settings.enabled {
            tracing::info!("dispatch is disabled by configuration");
            shutdown.await;
            return Ok(Totals::default());
        }
        let _guard = shared.store.start_dispatching(&shared.settings.worker).await?;

        // Each flight has a lease of `held`, and sends one result: the channel never fills.
        let (results, settler_inbox) = mpsc::channel(HELD_PER_SLOT * shared.settings.max_in_flight as usize);
        let mut parts = JoinSet::new();
        parts.spawn(heartbeat::run(Arc::clone(&shared)));
        parts.spawn(tender::run(Arc::clone(&shared)));
        let tidier = parts.spawn(tidier::run(Arc::clone(&shared)));
        let mut settler = tokio::spawn(settler::run(Arc::clone(&shared), settler_inbox));

        let mut flights = JoinSet::new();
        let (stop, stopping) = watch::channel(false);
        let (slots, per_lane) = (shared.settings.max_in_flight, shared.settings.max_in_flight_per_destination);
        let crew = Crew::new(slots, per_lane, results);
        let in_line = crew.in_line();
        parts.spawn(recall::run(Arc::clone(&shared), crew.in_line()));
        let mut claim_loop = ClaimLoop::new(Arc::clone(&shared), crew, stopping);
        let drain_until;
        {
            let mut claiming = pin!(claim_loop.run(&mut flights));
            tokio::select! {
                () = &mut claiming => unreachable!("the claim loop ends when it is told to"),
                () = shutdown => {}
                // Without its heartbeat or its settler it would go on claiming what it cannot keep.
                Some(ended) = parts.join_next() => ended.expect("the parts of a dispatcher do not panic"),
                ended = &mut settler => ended.expect("the settler does not panic"),
            }
            tracing::info!(
                worker_id = %shared.settings.worker,
                in_flight = shared.held.len(),
                "stopping: nothing new is claimed"
            );
            // A claim that is under way is waited for: its leases would otherwise be nobody's until they expire.
            stop.send_replace(true);
            tidier.abort();
            drain_until = tokio::time::Instant::now() + shared.settings.drain_timeout;
            let claimed = timeout(shared.settings.drain_timeout.max(PATIENCE), claiming);
            let _ = tokio::join!(claimed, recall::all(&shared, &in_line));
        }
        let drained = timeout_at(drain_until, shared.held.emptied()).await.is_ok();
        flights.shutdown().await;
        // With the flights and the claim loop gone, the settler's inbox closes and it ends with what it has.
        drop(claim_loop);
        if drained {
            // Its inbox is empty, so it ends at once.
            settler.await.expect("the settler does not panic");
        } else {
            give_back(&shared, settler).await;
        }
        parts.shutdown().await;
        let totals = shared.totals();
        summary::tell("dispatcher stopped", &totals, None);
        Ok(totals)
    }
}

/// A look at a dispatcher that runs, from beside it.
#[derive(Debug, Clone)]
pub struct Monitor(Arc<Shared>);

impl Monitor {
    /// What it has done so far.
    pub fn totals(&self) -> Totals {
        self.0.totals()
    }

    /// How many attempts are under way. It holds a lease for each of them, for what is in line, and for each result that is being
    /// settled.
    pub fn in_flight(&self) -> usize {
        self.0.held.flying()
    }

    /// How many are under way at most. It holds three times as many leases at most: of what is in line, under way, and being
    /// settled.
    pub fn max_in_flight(&self) -> u32 {
        self.0.settings.max_in_flight
    }

    /// The name under which it holds them.
    pub fn worker_id(&self) -> &WorkerId {
        &self.0.settings.worker
    }
}

/// Releases what the drain could not wait for. A store that does not answer gets a moment, not for ever: what is not
/// given back expires.
async fn give_back(shared: &Shared, settler: tokio::task::JoinHandle<()>) {
    let abort = settler.abort_handle();
    if timeout(PATIENCE, settler).await.is_err() {
        abort.abort();
    }
    let leases = shared.held.all();
    for lease in &leases {
        heartbeat::tell_end(shared, *lease, RenewalEnd::Shutdown);
    }
    release(shared, &leases).await;
}

async fn release(shared: &Shared, leases: &[Lease]) {
    if leases.is_empty() {
        return;
    }
    match timeout(PATIENCE, shared.store.release(&shared.settings.worker, leases)).await {
        Ok(Ok(released)) => shared.count(|totals| totals.released += released),
        Ok(Err(error)) => shared.store_failed("release", &error),
        Err(_) => {
            tracing::warn!(leases = leases.len(), "the store did not take the leases back in time, they will expire");
        }
    }
}

/// Waits longer and longer while something fails.
#[derive(Debug)]
struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);

    fn new() -> Self {
        Self { next: Self::FIRST }
    }

    fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST_BACKOFF);
        wait
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}
