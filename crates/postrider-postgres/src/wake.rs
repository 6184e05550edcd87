//! Wake-ups: NOTIFY, but only while somebody listens.
//!
//! NOTIFY takes a lock that serialises all commits of the database, so writers look first whether anybody would hear it:
//! whoever waits has a live row in `postrider.listeners`. The row says until when, is renewed when it is about to
//! lapse and not at each wait, and simply lapses when its owner is gone. A dispatcher that is [busy](crate::pace) takes it
//! away, and looks by itself.
//!
//! One connection listens, from the first wait on. When it is lost, everybody is woken (something may have been missed),
//! and it is opened again with a growing pause; meanwhile a wait is a pause of its timeout. Waiting is best effort by
//! contract: callers poll as well.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider::{StoreError, StoreErrorCode};
use sqlx::postgres::{PgArguments, PgListener, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{PgPool, Row as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Result;
use crate::lent::Lent;
use crate::pace::Pace;

/// What one can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Ready,
    Announced,
}

impl Channel {
    /// Its name in `postrider.listeners`.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Announced => "announced",
        }
    }

    /// What NOTIFY names; channels are not part of a schema.
    const fn notify_name(self) -> &'static str {
        match self {
            Self::Ready => "postrider_ready",
            Self::Announced => "postrider_announced",
        }
    }
}

/// The shortest time that a listener is registered for.
const SHORTEST_REGISTRATION: Duration = Duration::from_secs(10);
/// A longer wait renews its registration in between, so that the row of a process that crashed lapses soon.
const LONGEST_STRETCH: Duration = Duration::from_mins(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Wake {
    id: Uuid,
    listen_pool: PgPool,
    ready: Signal,
    announced: Signal,
    pace: Mutex<Pace>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Signal {
    sender: watch::Sender<u64>,
    state: Mutex<Registration>,
}

#[derive(Default)]
struct Registration {
    /// Until when the row in `postrider.listeners` is live, by this process's monotonic clock.
    until: Option<Instant>,
    /// The last wake-up that a wait has returned for, so that one that comes between two waits is not slept through.
    seen: u64,
}

impl Signal {
    fn new() -> Self {
        Self { sender: watch::Sender::new(0), state: Mutex::default() }
    }

    fn raise(&self) {
        raise(&self.sender);
    }

    fn state(&self) -> MutexGuard<'_, Registration> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn raise(sender: &watch::Sender<u64>) {
    sender.send_modify(|count| *count += 1);
}

impl Wake {
    pub(crate) fn new(listen_pool: PgPool) -> Self {
        let (ready, announced) = (Signal::new(), Signal::new());
        Self { id: Uuid::new_v4(), listen_pool, ready, announced, pace: Mutex::default(), task: Mutex::new(None) }
    }

    fn signal(&self, channel: Channel) -> &Signal {
        match channel {
            Channel::Ready => &self.ready,
            Channel::Announced => &self.announced,
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim took so many deliveries.
    pub(crate) fn took(&self, count: usize) {
        self.pace().took(count, Instant::now());
    }

    /// Returns when deliveries may have become ready, or after `timeout`.
    pub(crate) async fn wait_ready(&self, pool: &PgPool, timeout: Duration) {
        let (is_busy, look_after) = {
            let mut pace = self.pace();
            (pace.is_busy(Instant::now()), pace.look_after())
        };
        let wait = look_after.map_or(timeout, |after| after.min(timeout));
        let woken = if is_busy {
            self.withdraw(pool, Channel::Ready).await;
            tokio::time::sleep(wait).await;
            false
        } else {
            self.wait(pool, Channel::Ready, wait).await
        };
        if !woken && look_after == Some(wait) {
            self.pace().looks();
        }
    }

    /// Returns when something may have been announced, or after `timeout`.
    pub(crate) async fn wait_announced(&self, pool: &PgPool, timeout: Duration) {
        self.wait(pool, Channel::Announced, timeout).await;
    }

    /// Returns upon the next wake-up, or one since the last wait, or after `timeout`. True upon a wake-up.
    async fn wait(&self, pool: &PgPool, channel: Channel, timeout: Duration) -> bool {
        self.start();
        let deadline = Instant::now() + timeout;
        loop {
            let stretch = deadline.saturating_duration_since(Instant::now()).min(LONGEST_STRETCH);
            let woken = self.wait_registered(pool, channel, stretch).await;
            if woken || Instant::now() >= deadline {
                return woken;
            }
        }
    }

    /// Waits with a row in `postrider.listeners` that outlasts the wait. True upon a wake-up.
    async fn wait_registered(&self, pool: &PgPool, channel: Channel, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let signal = self.signal(channel);
        if self.must_register(channel, timeout) {
            // What became ready before the row was there was not notified, so it is looked for once.
            match tokio::time::timeout_at(deadline, self.register(pool, channel, timeout)).await {
                Ok(true) => signal.raise(),
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        let seen = signal.state().seen;
        let mut receiver = signal.sender.subscribe();
        let woken = tokio::time::timeout_at(deadline, receiver.wait_for(|count| *count > seen)).await;
        let Ok(Ok(count)) = woken else { return false };
        signal.state().seen = *count;
        true
    }

    fn must_register(&self, channel: Channel, timeout: Duration) -> bool {
        let state = self.signal(channel).state();
        let margin = timeout + Duration::from_secs(1);
        state.until.is_none_or(|until| until < Instant::now() + margin)
    }

    /// Puts the row in place. True when there is something to look at already, and the row is new.
    async fn register(&self, pool: &PgPool, channel: Channel, timeout: Duration) -> bool {
        let lasts = (timeout * 3).max(SHORTEST_REGISTRATION);
        let now = Instant::now();
        let statement = sqlx::query(include_str!("../sql/listen.sql"))
            .bind(self.id)
            .bind(channel.as_str())
            .bind(crate::values::micros(lasts));
        if let Err(error) = ask(pool, statement).await {
            tracing::debug!(%error, channel = channel.as_str(), "could not register for wake-ups; polling instead");
            return false;
        }
        let was_live = {
            let mut state = self.signal(channel).state();
            let was_live = state.until.is_some_and(|until| until > now);
            state.until = Some(now + lasts);
            was_live
        };
        if channel != Channel::Ready || was_live {
            return false;
        }
        let found = ask(pool, sqlx::query(include_str!("../sql/any_ready.sql"))).await;
        found.is_ok_and(|rows| rows.first().is_some_and(|row| row.get(0)))
    }

    /// Takes the row away, if there is one.
    async fn withdraw(&self, pool: &PgPool, channel: Channel) {
        if self.signal(channel).state().until.take().is_none() {
            return;
        }
        let statement = sqlx::query(include_str!("../sql/listen_no_more.sql")).bind(self.id).bind(channel.as_str());
        if let Err(error) = ask(pool, statement).await {
            tracing::debug!(%error, channel = channel.as_str(), "could not do without wake-ups; they lapse by themselves");
        }
    }

    /// Starts the listening task, at the first wait.
    fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            let senders = [self.ready.sender.clone(), self.announced.sender.clone()];
            *task = Some(tokio::spawn(listen(self.listen_pool.clone(), senders)));
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// Asks the database. Whoever waits is interrupted often; what it has asked for meanwhile is answered all the same, so
/// that its connection need not be closed.
async fn ask(pool: &PgPool, statement: Query<'static, Postgres, PgArguments>) -> Result<Vec<PgRow>> {
    let pool = pool.clone();
    let asked = tokio::spawn(async move { Lent::from(&pool, "registering for wake-ups").await?.rows(statement).await });
    asked.await.unwrap_or_else(|_| Err(StoreError::new(StoreErrorCode::Unavailable, "the runtime is shutting down")))
}

/// Listens for ever, over as many connections as it takes.
async fn listen(pool: PgPool, senders: [watch::Sender<u64>; 2]) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match listen_once(&pool, &senders, &mut pause).await {
            Ok(()) => tracing::debug!("the connection that listens for wake-ups was lost; polling meanwhile"),
            Err(error) => tracing::warn!(%error, ?pause, "cannot listen for wake-ups; polling meanwhile"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Listens over one connection, until it is lost.
async fn listen_once(pool: &PgPool, senders: &[watch::Sender<u64>; 2], pause: &mut Duration) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.eager_reconnect(false);
    listener.listen_all([Channel::Ready.notify_name(), Channel::Announced.notify_name()]).await?;
    *pause = SHORTEST_PAUSE;
    // Whatever was told while nobody listened was missed.
    senders.iter().for_each(raise);
    while let Some(notification) = listener.try_recv().await? {
        let [ready, announced] = senders;
        raise(if notification.channel() == Channel::Announced.notify_name() { announced } else { ready });
    }
    senders.iter().for_each(raise);
    Ok(())
}
