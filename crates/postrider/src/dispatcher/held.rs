//! The leases that a dispatcher holds: what is in line, under way and being settled, and until when each is safe.
//!
//! An entry is made when a claim returns, before the attempt starts, and goes away when its settle returns: until then the
//! heartbeat renews it. It occupies a slot of the dispatcher and one of its lane only while its attempt is under way,
//! since those are for what receivers and this process bear at once; how much may wait in line for a slot is said in
//! [`lanes`](super::lanes); what waits for its settle is bounded apart, so that a store that is slow to settle stops new claims.
//! Entries are kept by token, not by delivery: a dispatcher may claim a delivery again whose earlier lease it let lapse, while
//! the earlier attempt is still under way.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::Notify;

use super::lanes::{Asked, Lanes, Shortage, entry};
use crate::ids::DeliveryId;
use crate::lease::{Lease, LeaseToken};
use crate::store::Lane;

/// The hash of a token: its own bits, of which 122 are random, and which nobody outside has chosen.
#[derive(Debug, Default)]
struct RandomBits(u64);

impl Hasher for RandomBits {
    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= bytes.last_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many leases are held at most for each slot: one whose attempt is under way, one that is in line for the slot, and one
/// that is being settled.
pub(super) const HELD_PER_SLOT: usize = 3;

/// Why the renewal of a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RenewalEnd {
    /// Its settle took effect.
    Completed,
    /// The store no longer had it for this worker and token.
    Lost,
    /// Renewals failed until the lease had run out.
    StoreError,
    /// The attempt did not end by its hard deadline.
    Deadline,
    /// The dispatcher stopped.
    Shutdown,
}

impl fmt::Display for RenewalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Lost => "lost",
            Self::StoreError => "store_error",
            Self::Deadline => "deadline",
            Self::Shutdown => "shutdown",
        })
    }
}

/// How far the attempt under a lease has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not begun.
    Waiting,
    /// It is under way, and has its slots.
    Flying,
    /// It has ended.
    Landed,
    /// Its result has been handed to the store, so the lease may vanish there at any moment.
    Settling,
}

/// One lease that is held.
#[derive(Debug, Clone)]
struct Held {
    delivery_id: DeliveryId,
    lane: Lane,
    asked_at: Instant,
    /// Until when the lease certainly lasts: counted from before the claim or renewal was sent.
    safe_until: Instant,
    /// From when on it is not renewed any more, whatever its attempt does.
    hard_deadline: Instant,
    stage: Stage,
    /// It is still renewed.
    renewing: bool,
    /// Other dispatchers wait for the end of this lease as well.
    lane_shared: bool,
    /// Its receiver has said that it is gone.
    closes_lane: bool,
}

impl Held {
    /// Whether the lease certainly still lasts.
    fn is_safe(&self, now: Instant) -> bool {
        self.renewing && now < self.safe_until
    }
}

#[derive(Debug, Default)]
struct Inner {
    by_token: HashMap<LeaseToken, Held, BuildHasherDefault<RandomBits>>,
    lanes: Lanes,
    /// How many attempts are under way.
    flying: usize,
    /// For how many more the claimer waits to have room. None, if it does not.
    room_wanted: Option<u32>,
}

impl Inner {
    /// Takes an attempt's slots back, or its place in line. Returns whether somebody may have waited for one of them.
    fn land(&mut self, token: LeaseToken, max_in_flight: u32) -> bool {
        let Some(held) = self.by_token.get_mut(&token) else { return false };
        let has_flown = match held.stage {
            Stage::Waiting => false,
            Stage::Flying => true,
            Stage::Landed | Stage::Settling => return false,
        };
        held.stage = Stage::Landed;
        self.flying -= usize::from(has_flown);
        self.lanes.remove(&held.lane, has_flown, max_in_flight)
    }

    /// How many more may be claimed.
    fn room(&self, max_in_flight: u32) -> u32 {
        let unheld = (HELD_PER_SLOT * max_in_flight as usize).saturating_sub(self.by_token.len());
        self.lanes.room(max_in_flight).min(u32::try_from(unheld).unwrap_or(u32::MAX))
    }
}

/// Whether an attempt may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clearance {
    Given,
    /// The lease may have run out.
    LeaseOver,
    /// The receiver has just told another attempt that it is gone.
    LaneClosed,
}

/// All leases that are held.
#[derive(Debug)]
pub(crate) struct HeldLeases {
    max_in_flight: u32,
    inner: Mutex<Inner>,
    /// Told when a slot that somebody may be waiting for is free again.
    freed: Notify,
    /// Told when one entry is left, or none.
    emptied: Notify,
}

/// A lease whose renewal ended, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) lease: Lease,
    pub(crate) reason: RenewalEnd,
}

/// What is known of a lease when it is granted.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) lease: Lease,
    pub(crate) lane: Lane,
    pub(crate) lane_limit: u32,
    /// More than that may be claimed, to wait in line.
    pub(crate) lane_may_wait: bool,
    /// Other dispatchers' leases count as well: the lane may be full although this one holds few of its slots.
    pub(crate) lane_shared: bool,
    /// When the claim was sent that brought it.
    pub(crate) asked_at: Instant,
    pub(crate) safe_until: Instant,
    pub(crate) hard_deadline: Instant,
}

impl HeldLeases {
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self { max_in_flight, inner: Mutex::default(), freed: Notify::new(), emptied: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds this lock")
    }

    /// What a claim may ask for now.
    pub(crate) fn ask(&self, now: Instant) -> Asked {
        let mut inner = self.lock();
        let asked = inner.lanes.ask(self.max_in_flight, now);
        Asked { room: inner.room(self.max_in_flight), ..asked }
    }

    /// Puts what a claim granted in line. `asked` is what it was asked for, and `visited` says of which lanes it knows that they
    /// have no more than it brought.
    pub(crate) fn add(
        &self,
        granted: impl IntoIterator<Item = Granted>,
        asked: &Asked,
        visited: impl Fn(&Lane) -> bool,
    ) -> Shortage {
        let mut inner = self.lock();
        let mut given: HashMap<Lane, u32> = HashMap::new();
        for it in granted {
            inner.lanes.add(&it.lane, it.lane_limit, it.lane_may_wait);
            *entry(&mut given, &it.lane) += 1;
            let held = Held {
                delivery_id: it.lease.delivery_id,
                lane: it.lane,
                asked_at: it.asked_at,
                safe_until: it.safe_until,
                hard_deadline: it.hard_deadline,
                stage: Stage::Waiting,
                renewing: true,
                lane_shared: it.lane_shared,
                closes_lane: false,
            };
            inner.by_token.insert(it.lease.token, held);
        }
        let shortage = inner.lanes.answered(asked, &given, visited);
        drop(inner);
        if shortage.has_room {
            self.freed.notify_one();
        }
        shortage
    }

    /// An attempt begins, if it may, which will not be renewed beyond this deadline.
    pub(crate) fn begin(&self, token: LeaseToken, now: Instant, hard_deadline: Instant) -> Clearance {
        let mut inner = self.lock();
        let Inner { by_token, lanes, .. } = &mut *inner;
        let Some(held) = by_token.get_mut(&token) else { return Clearance::LeaseOver };
        if !held.is_safe(now) {
            return Clearance::LeaseOver;
        }
        if lanes.is_closed_to(&held.lane, held.asked_at) {
            return Clearance::LaneClosed;
        }
        held.hard_deadline = held.hard_deadline.max(hard_deadline);
        if held.stage == Stage::Waiting {
            held.stage = Stage::Flying;
            inner.flying += 1;
        }
        Clearance::Given
    }

    /// The attempt has ended: its slots are free again. Its lease is held until it is settled or given back. If its receiver is
    /// gone, nothing else begins in its lane until then.
    pub(crate) fn landed(&self, token: LeaseToken, is_gone: bool) {
        let mut inner = self.lock();
        let Inner { by_token, lanes, .. } = &mut *inner;
        if let Some(held) = by_token.get_mut(&token).filter(|held| is_gone && !held.closes_lane) {
            held.closes_lane = true;
            lanes.close(&held.lane);
        }
        let wanted = inner.land(token, self.max_in_flight);
        self.tell_freed(inner, wanted);
    }

    /// Gives up these leases, and their slots if they still have them.
    pub(crate) fn remove(&self, tokens: impl IntoIterator<Item = LeaseToken>) {
        let mut inner = self.lock();
        let mut wanted = inner.by_token.len() >= HELD_PER_SLOT * self.max_in_flight as usize;
        for token in tokens {
            wanted |= inner.land(token, self.max_in_flight);
            let Some(held) = inner.by_token.remove(&token) else { continue };
            // Where all dispatchers' leases count, the lane has room only now.
            wanted |= held.lane_shared;
            if held.closes_lane {
                inner.lanes.reopen(&held.lane, Instant::now());
                wanted = true;
            }
        }
        let few = inner.by_token.len() <= 1;
        self.tell_freed(inner, wanted);
        if few {
            self.emptied.notify_waiters();
        }
    }

    fn tell_freed(&self, inner: MutexGuard<'_, Inner>, wanted: bool) {
        let has_room = inner.room_wanted.is_some_and(|wanted| inner.room(self.max_in_flight) >= wanted);
        drop(inner);
        if wanted || has_room {
            self.freed.notify_one();
        }
    }

    /// The results of attempts that have landed are about to be handed to the store.
    pub(crate) fn mark_settling(&self, tokens: impl IntoIterator<Item = LeaseToken>) {
        let mut inner = self.lock();
        for token in tokens {
            if let Some(held) = inner.by_token.get_mut(&token) {
                held.stage = Stage::Settling;
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().by_token.len()
    }

    /// How many attempts are under way.
    pub(crate) fn flying(&self) -> usize {
        self.lock().flying
    }

    /// How many more may be claimed.
    pub(crate) fn room(&self) -> u32 {
        self.lock().room(self.max_in_flight)
    }

    /// Whether the lease certainly still lasts.
    pub(crate) fn is_safe(&self, token: LeaseToken, now: Instant) -> bool {
        self.lock().by_token.get(&token).is_some_and(|held| held.is_safe(now))
    }

    /// What the next heartbeat renews, and what it gives up because the attempt has outlived its hard deadline.
    pub(crate) fn due_for_renewal(&self, now: Instant) -> (Vec<Lease>, Vec<Ended>) {
        let mut renew = Vec::new();
        let mut ended = Vec::new();
        for (token, held) in &mut self.lock().by_token {
            let lease = Lease { delivery_id: held.delivery_id, token: *token };
            if !held.renewing {
                continue;
            }
            if now >= held.hard_deadline {
                held.renewing = false;
                ended.push(Ended { lease, reason: RenewalEnd::Deadline });
            } else {
                renew.push(lease);
            }
        }
        (renew, ended)
    }

    /// What a renewal of `asked` came to: those in `renewed` last until `safe_until`. A lease that is missing was
    /// completed if it was being settled, and lost otherwise.
    pub(crate) fn renewed(&self, asked: &[Lease], renewed: &[Lease], safe_until: Instant) -> Vec<Ended> {
        let mut inner = self.lock();
        let mut missing: HashMap<LeaseToken, Lease> = asked.iter().map(|lease| (lease.token, *lease)).collect();
        for lease in renewed {
            missing.remove(&lease.token);
            if let Some(held) = inner.by_token.get_mut(&lease.token) {
                held.safe_until = held.safe_until.max(safe_until);
            }
        }
        let mut ended = Vec::new();
        for (token, lease) in missing {
            // An entry that is gone was settled between the question and the answer.
            let Some(held) = inner.by_token.get_mut(&token) else { continue };
            if held.renewing && held.stage != Stage::Settling {
                held.renewing = false;
                ended.push(Ended { lease, reason: RenewalEnd::Lost });
            }
        }
        ended
    }

    /// A renewal failed: what has run out by now is given up.
    pub(crate) fn renewal_failed(&self, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        for (token, held) in &mut self.lock().by_token {
            if held.renewing && held.stage != Stage::Settling && now >= held.safe_until {
                held.renewing = false;
                let lease = Lease { delivery_id: held.delivery_id, token: *token };
                ended.push(Ended { lease, reason: RenewalEnd::StoreError });
            }
        }
        ended
    }

    /// Everything that is still held.
    pub(crate) fn all(&self) -> Vec<Lease> {
        let inner = self.lock();
        inner.by_token.iter().map(|(token, held)| Lease { delivery_id: held.delivery_id, token: *token }).collect()
    }

    /// Waits until there is room again where it was short.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until there is room for so many.
    pub(crate) async fn room_for(&self, count: u32) {
        let _waiting = RoomWanted::new(self, count);
        while self.room() < count {
            self.freed().await;
        }
    }

    /// Waits until nothing is held.
    pub(crate) async fn emptied(&self) {
        self.at_most(0).await;
    }

    /// Waits until at most one lease is held.
    pub(crate) async fn alone(&self) {
        self.at_most(1).await;
    }

    async fn at_most(&self, count: usize) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() <= count {
                return;
            }
            emptied.await;
        }
    }
}

/// That the claimer waits for room, for as long as it does.
struct RoomWanted<'a>(&'a HeldLeases);

impl<'a> RoomWanted<'a> {
    fn new(held: &'a HeldLeases, count: u32) -> Self {
        held.lock().room_wanted = Some(count);
        Self(held)
    }
}

impl Drop for RoomWanted<'_> {
    fn drop(&mut self) {
        self.0.lock().room_wanted = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    fn lease() -> Lease {
        Lease { delivery_id: DeliveryId::from_uuid(Uuid::now_v7()), token: LeaseToken(Uuid::new_v4()) }
    }

    fn granted(lease: Lease, now: Instant) -> Granted {
        let lane = Lane("example.com".to_owned());
        let (safe_until, hard_deadline) = (now + Duration::from_secs(30), now + Duration::from_secs(60));
        let (lane_limit, lane_may_wait, lane_shared, asked_at) = (2, true, false, now);
        Granted { lease, lane, lane_limit, lane_may_wait, lane_shared, asked_at, safe_until, hard_deadline }
    }

    /// What a claim brought that was not asked for anything in particular.
    fn add<const N: usize>(held: &HeldLeases, granted: [Granted; N]) {
        held.add(granted, &Asked::default(), |_| true);
    }

    fn begin(held: &HeldLeases, token: LeaseToken, now: Instant) -> Clearance {
        held.begin(token, now, now + Duration::from_secs(60))
    }

    /// The same, and its attempts have begun.
    fn launch<const N: usize>(held: &HeldLeases, granted: [Granted; N], now: Instant) {
        let tokens = granted.each_ref().map(|granted| granted.lease.token);
        add(held, granted);
        assert!(tokens.iter().all(|token| begin(held, *token, now) == Clearance::Given));
    }

    #[test]
    fn a_slot_is_taken_from_the_claim_to_the_end_of_the_attempt() {
        let held = HeldLeases::new(3);
        let now = Instant::now();
        let (one, two) = (lease(), lease());
        add(&held, [granted(one, now), granted(two, now)]);
        assert_eq!((held.room(), held.flying()), (1, 0));
        for lease in [one, two] {
            assert_eq!(begin(&held, lease.token, now), Clearance::Given);
        }
        assert_eq!((held.room(), held.flying()), (1, 2));
        assert_eq!(held.ask(now).in_flight, [(Lane("example.com".to_owned()), 2)]);
        held.landed(one.token, false);
        held.landed(one.token, false);
        assert_eq!((held.room(), held.flying(), held.len()), (2, 1, 2), "its lease is held until it is settled");
        assert!(held.due_for_renewal(now).0.contains(&one), "and renewed");
        held.remove([one.token]);
        held.remove([one.token]);
        assert_eq!((held.room(), held.len()), (2, 1));
        // One that is given back without an end of its attempt has its slot free as well.
        held.remove([two.token]);
        assert_eq!((held.room(), held.flying()), (3, 0));
        assert_eq!(held.ask(now).in_flight, []);
    }

    #[test]
    fn what_waits_for_its_settle_stops_new_claims_in_the_end() {
        let held = HeldLeases::new(2);
        let now = Instant::now();
        let leases = [(); 6].map(|()| lease());
        for lease in leases {
            assert!(held.room() > 0);
            launch(&held, [granted(lease, now)], now);
            held.landed(lease.token, false);
        }
        assert_eq!((held.room(), held.flying()), (0, 0));
        held.remove([leases[0].token]);
        assert_eq!(held.room(), 1);
    }

    #[tokio::test]
    async fn whoever_waits_for_room_is_told_when_there_is_enough() {
        let held = HeldLeases::new(100);
        let now = Instant::now();
        let leases: Vec<Lease> = (0..90).map(|_| lease()).collect();
        let granted = |lease: &Lease| Granted { lane_limit: 100, ..granted(*lease, now) };
        held.add(leases.iter().map(granted), &Asked::default(), |_| true);
        let land = async {
            for lease in &leases[..40] {
                held.landed(lease.token, false);
                tokio::task::yield_now().await;
            }
        };
        let waiting = tokio::time::timeout(Duration::from_secs(5), held.room_for(50));
        let (told, ()) = tokio::join!(waiting, land);
        assert!(told.is_ok() && held.room() == 50);
        held.landed(leases[50].token, false);
        let unwanted = tokio::time::timeout(Duration::from_millis(1), held.freed()).await;
        assert!(unwanted.is_err(), "nobody waits any more");
    }

    #[test]
    fn what_a_renewal_misses_is_lost_unless_it_was_being_settled() {
        let held = HeldLeases::new(8);
        let now = Instant::now();
        let (renewed, settling, settled, lost) = (lease(), lease(), lease(), lease());
        add(&held, [renewed, settling, settled, lost].map(|lease| granted(lease, now)));
        let (asked, _) = held.due_for_renewal(now);
        assert_eq!(asked.len(), 4);
        held.landed(settling.token, false);
        held.mark_settling([settling.token]);
        held.remove([settled.token]);
        let later = now + Duration::from_secs(40);
        assert_eq!(held.renewed(&asked, &[renewed], later), [Ended { lease: lost, reason: RenewalEnd::Lost }]);
        assert!(held.is_safe(renewed.token, now + Duration::from_secs(39)));
        assert!(!held.is_safe(lost.token, now), "a lost lease allows no new send");
        assert!(!held.due_for_renewal(now).0.contains(&lost), "a lost lease is not renewed");
        assert_eq!(held.len(), 3, "its attempt goes on and keeps its slot");
    }

    #[test]
    fn an_attempt_that_outlives_its_hard_deadline_is_not_renewed_any_more() {
        let held = HeldLeases::new(8);
        let now = Instant::now();
        let hung = lease();
        add(&held, [granted(hung, now)]);
        assert_eq!(held.due_for_renewal(now + Duration::from_secs(59)).0, [hung]);
        let (renew, ended) = held.due_for_renewal(now + Duration::from_secs(60));
        assert_eq!((renew, ended), (vec![], vec![Ended { lease: hung, reason: RenewalEnd::Deadline }]));
        assert_eq!(held.due_for_renewal(now + Duration::from_secs(61)), (vec![], vec![]), "it is told once");
    }

    #[test]
    fn failed_renewals_end_a_lease_only_when_it_has_run_out() {
        let held = HeldLeases::new(8);
        let now = Instant::now();
        let one = lease();
        add(&held, [granted(one, now)]);
        assert_eq!(held.renewal_failed(now + Duration::from_secs(29)), []);
        assert!(held.is_safe(one.token, now + Duration::from_secs(29)));
        let ended = held.renewal_failed(now + Duration::from_secs(30));
        assert_eq!(ended, [Ended { lease: one, reason: RenewalEnd::StoreError }]);
        assert!(!held.is_safe(one.token, now));
    }

    #[tokio::test]
    async fn nothing_begins_where_the_receiver_is_gone_until_that_is_settled() {
        let held = HeldLeases::new(8);
        let now = Instant::now();
        let (told, waiting, other) = (lease(), lease(), lease());
        let elsewhere = Granted { lane: Lane("example.org".to_owned()), ..granted(other, now) };
        launch(&held, [granted(told, now)], now);
        add(&held, [granted(waiting, now), elsewhere]);
        held.landed(told.token, true);
        held.landed(told.token, true);
        assert_eq!(begin(&held, waiting.token, now), Clearance::LaneClosed);
        assert_eq!(begin(&held, other.token, now), Clearance::Given);
        assert_eq!((held.flying(), held.ask(now).closed), (1, vec![Lane("example.com".to_owned())]));
        held.remove([told.token]);
        tokio::time::timeout(Duration::from_secs(5), held.freed())
            .await
            .expect("what the store says now is asked again");
        assert_eq!(begin(&held, waiting.token, now), Clearance::LaneClosed, "it was claimed before that");
        let (later, resumed) = (Instant::now() + Duration::from_secs(1), lease());
        add(&held, [granted(resumed, later)]);
        assert_eq!(begin(&held, resumed.token, later), Clearance::Given, "the store does not think so any more");
        assert_eq!(begin(&held, resumed.token, later + Duration::from_secs(30)), Clearance::LeaseOver);
    }

    #[tokio::test]
    async fn freeing_a_short_slot_wakes_the_claimer() {
        let held = HeldLeases::new(100);
        let now = Instant::now();
        let (one, two, other) = (lease(), lease(), lease());
        add(&held, [granted(one, now), granted(two, now)]);
        held.remove([one.token]);
        held.freed().await;
        held.remove([two.token]);
        held.freed().await;
        held.emptied().await;
        add(&held, [granted(other, now)]);
        held.remove([other.token]);
        let unwanted = tokio::time::timeout(Duration::from_millis(1), held.freed()).await;
        assert!(unwanted.is_err(), "nobody waits for a lane that was not full");
    }

    #[tokio::test]
    async fn freeing_a_slot_that_others_share_wakes_the_claimer() {
        let held = HeldLeases::new(100);
        let one = lease();
        add(&held, [Granted { lane_shared: true, ..granted(one, Instant::now()) }]);
        held.remove([one.token]);
        let told = tokio::time::timeout(Duration::from_secs(5), held.freed()).await;
        assert!(told.is_ok(), "another dispatcher may hold the other slot");
    }

    #[tokio::test]
    async fn a_slot_that_comes_free_during_a_claim_is_offered_once_more() {
        let held = HeldLeases::new(100);
        let now = Instant::now();
        let (one, two, three) = (lease(), lease(), lease());
        add(&held, [granted(one, now)]);
        let asked = held.ask(now);
        held.add([granted(two, now)], &asked, |_| true);
        let unwanted = tokio::time::timeout(Duration::from_millis(1), held.freed()).await;
        assert!(unwanted.is_err(), "the lane is full, and its next settle will tell");

        held.remove([one.token]);
        held.freed().await;
        let asked = held.ask(now);
        held.remove([two.token]);
        held.add([granted(three, now)], &asked, |_| true);
        let told = tokio::time::timeout(Duration::from_secs(5), held.freed()).await;
        assert!(told.is_ok(), "one of the two slots was not offered");
    }
}
