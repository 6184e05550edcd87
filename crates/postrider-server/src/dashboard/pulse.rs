//! What goes on, for everybody who looks at the same tenant.
//!
//! While somebody looks, and for a while after, one task follows the tenant's announcements and counts what waits. However many
//! look, the database is asked once; and pages need not be asked for again while nothing happens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::{DeliveryId, Fact};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::history::History;
use crate::api::Problem;
use crate::api::overview::Overview;
use crate::api::stream::StreamQuery;
use crate::http::AppState;
use crate::service::{Caller, Follower, Tenancy, Told};

/// How often it is looked.
const TICK: Duration = Duration::from_secs(2);

/// How often pages are asked to look again although nothing happened: plots move on.
const QUIET_BEAT: Duration = Duration::from_secs(10);

/// How old an overview may be to be shown.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// How long it goes on when nobody looks.
const PATIENCE: Duration = Duration::from_mins(10);

/// How long to wait when the database is away.
const TROUBLE_PAUSE: Duration = Duration::from_secs(2);

/// How long the first page waits for what was before it.
const FIRST_BEAT: Duration = Duration::from_millis(600);

/// How many announcements from before are read, of all tenants, and in how many steps.
const BACK: i64 = 2_000;
const BACK_READS: usize = 8;

/// Of how many deliveries it is looked up how long they took, in each tick.
const LATENCIES: usize = 20;

/// For how many tenants at once.
const MOST: usize = 64;

/// Everything that is felt by one server.
#[derive(Debug, Default)]
pub(super) struct Pulses(Mutex<HashMap<Option<String>, Arc<Pulse>>>);

/// What goes on for one tenant, or for all.
#[derive(Debug)]
pub(super) struct Pulse {
    history: Mutex<History>,
    overview: Mutex<Option<Overview>>,
    beats: watch::Sender<u64>,
    viewed_at: Mutex<Instant>,
    ended: AtomicBool,
}

impl Pulses {
    fn all(&self) -> MutexGuard<'_, HashMap<Option<String>, Arc<Pulse>>> {
        self.0.lock().expect("no code panics while it holds this lock")
    }

    /// That of a tenancy; from now on at the latest it is felt.
    pub(super) fn of(&self, state: &AppState, tenancy: &Tenancy) -> Arc<Pulse> {
        let name = tenancy.filter().map(str::to_owned);
        let mut all = self.all();
        if let Some(pulse) = all.get(&name) {
            pulse.view();
            return Arc::clone(pulse);
        }
        if all.len() >= MOST {
            let longest_ago = all.iter().min_by_key(|(_, pulse)| pulse.viewed()).map(|(name, _)| name.clone());
            if let Some(pulse) = longest_ago.and_then(|name| all.remove(&name)) {
                pulse.ended.store(true, Ordering::Relaxed);
            }
        }
        let pulse = Arc::new(Pulse {
            history: Mutex::new(History::new(Timestamp::now())),
            overview: Mutex::new(None),
            beats: watch::Sender::new(0),
            viewed_at: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
        });
        all.insert(name, Arc::clone(&pulse));
        let feeling = feel(state.clone(), tenancy.clone(), Arc::clone(&pulse));
        let state = state.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = state.draining() => {}
                () = feeling => {}
            }
        });
        pulse
    }

    fn forget(&self, tenancy: &Tenancy, pulse: &Arc<Pulse>) {
        let name = tenancy.filter().map(str::to_owned);
        let mut all = self.all();
        if all.get(&name).is_some_and(|known| Arc::ptr_eq(known, pulse)) {
            all.remove(&name);
        }
    }
}

impl Pulse {
    /// Somebody looks.
    pub(super) fn view(&self) {
        *self.viewed_at.lock().expect("no code panics while it holds this lock") = Instant::now();
    }

    fn viewed(&self) -> Instant {
        *self.viewed_at.lock().expect("no code panics while it holds this lock")
    }

    /// Nobody feels it any more: others were looked at more recently.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.has_ended() || self.viewed().elapsed() > PATIENCE
    }

    fn change(&self, change: impl FnOnce(&mut History)) {
        change(&mut self.history.lock().expect("no code panics while it holds this lock"));
    }

    /// The last quarter of an hour, once there was a moment to find out about it.
    pub(super) async fn history(&self) -> History {
        let mut beats = self.beats.subscribe();
        let _ = timeout(FIRST_BEAT, beats.wait_for(|beat| *beat > 0)).await;
        self.history.lock().expect("no code panics while it holds this lock").clone()
    }

    /// How everything stood a moment ago. To count it anew takes a while when there is very much.
    pub(super) fn overview(&self) -> Option<Overview> {
        let overview = self.overview.lock().expect("no code panics while it holds this lock").clone();
        overview.filter(|it| Timestamp::now().duration_since(it.counted_at) < FRESH)
    }

    /// Changes whenever it is worth looking again.
    pub(super) fn beats(&self) -> watch::Receiver<u64> {
        self.beats.subscribe()
    }
}

async fn feel(state: AppState, tenancy: Tenancy, pulse: Arc<Pulse>) {
    while !pulse.is_over() {
        if let Err(problem) = Finger::put(&state, &tenancy, &pulse).await {
            tracing::warn!(code = problem.code, "the dashboard cannot follow what goes on: {}", problem.detail);
            tokio::time::sleep(TROUBLE_PAUSE).await;
        }
    }
    pulse.ended.store(true, Ordering::Relaxed);
    state.desk().pulses.forget(&tenancy, &pulse);
}

/// What feels a pulse.
struct Finger<'a> {
    state: &'a AppState,
    pulse: &'a Pulse,
    follower: Follower,
    /// Delivered lately, at the first attempt.
    delivered: Vec<DeliveryId>,
    facts: u64,
}

impl<'a> Finger<'a> {
    async fn put(state: &'a AppState, tenancy: &Tenancy, pulse: &'a Pulse) -> Result<(), Problem> {
        let service = state.service();
        let caller = Caller::operator(tenancy.clone(), "dashboard");
        let end = service.store().announcements_end().await?.position;
        let begin = (end - BACK).max(0);
        let query = StreamQuery { after: Some(begin.to_string()), ..StreamQuery::default() };
        let follower = service.follow(&caller, &query, None).await?;
        let mut finger = Self { state, pulse, follower, delivered: Vec::new(), facts: 0 };
        pulse.change(|history| *history = History::new(Timestamp::now()));
        let mut oldest = None;
        for _ in 0..BACK_READS {
            let told = finger.follower.next(Duration::ZERO).await?;
            oldest = oldest.or_else(|| told.first().map(|told| told.announcement.at));
            finger.take(&told);
        }
        if let (Some(oldest), true) = (oldest, begin > 0) {
            pulse.change(|history| history.known_from(oldest));
        }
        finger.feel(&caller).await
    }

    async fn feel(&mut self, caller: &Caller) -> Result<(), Problem> {
        let mut last: Option<Overview> = None;
        let mut beat_at = Instant::now();
        while !self.pulse.is_over() {
            let tick_at = Instant::now() + TICK;
            self.look_up().await?;
            let overview = self.state.service().overview(caller).await?;
            self.pulse.change(|history| {
                history.advance(Timestamp::now());
                history.see(&overview);
            });
            *self.pulse.overview.lock().expect("no code panics while it holds this lock") = Some(overview.clone());
            let same = last.as_ref().is_some_and(|last| is_same(last, &overview));
            if self.facts > 0 || !same || beat_at.elapsed() >= QUIET_BEAT {
                self.pulse.beats.send_modify(|beat| *beat += 1);
                (beat_at, self.facts) = (Instant::now(), 0);
            }
            last = Some(overview);
            while Instant::now() < tick_at {
                let told = self.follower.next(tick_at.saturating_duration_since(Instant::now())).await?;
                self.take(&told);
            }
        }
        Ok(())
    }

    fn take(&mut self, told: &[Told]) {
        self.facts += told.len() as u64;
        self.pulse.change(|history| {
            history.advance(Timestamp::now());
            for announcement in told.iter().map(|told| &told.announcement) {
                if let Ok(fact) = announcement.fact.parse() {
                    history.tell(fact, announcement.at);
                }
            }
        });
        let first = told.iter().map(|told| &told.announcement).filter(|it| it.attempt_count == 1);
        let delivered = first.filter(|it| it.fact == Fact::Delivered.as_str()).map(|it| it.delivery_id);
        self.delivered.extend(delivered);
        let surplus = self.delivered.len().saturating_sub(LATENCIES);
        self.delivered.drain(..surplus);
    }

    /// Announcements do not say how long something took; the deliveries do.
    async fn look_up(&mut self) -> Result<(), Problem> {
        for id in std::mem::take(&mut self.delivered) {
            let Some(found) = self.state.service().store().delivery(id).await? else { continue };
            let delivery = found.delivery;
            let took = delivery.last_attempted_at.map(|at| at.duration_since(delivery.created_at).as_millis());
            if let Some(Ok(took)) = took.map(u64::try_from) {
                self.pulse.change(|history| history.took(took));
            }
        }
        Ok(())
    }
}

/// But for when it was counted.
fn is_same(one: &Overview, other: &Overview) -> bool {
    Overview { counted_at: one.counted_at, ..other.clone() } == *one
}
