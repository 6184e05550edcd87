//! How much a dispatcher has of each lane, and how much more it may ask for.
//!
//! A lane has so many slots, and an attempt has one of them while it is under way. If claims asked for no more than there are free
//! slots, they would be small where slots come free by and by, and slots would stand empty until the next claim is
//! answered. So a claim may ask for more, to be kept in line until slots come free: in each lane, and in all, for as much as
//! has ended within the last [`LOOK_AHEAD`]. What is in line begins within about that time, and where nothing ends, nothing
//! is asked for ahead: a destination that hangs holds its slots and no more.
//!
//! A receiver that says that it is gone closes its lane at once, before the store knows: nothing more begins there or is asked for.
//!
//! Endpoints with limits of their own have nothing in line. Their limits hold for all dispatchers together, and what one of
//! them keeps in line would be missing elsewhere.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::store::Lane;

/// Within which time what was asked for ahead should begin.
pub(super) const LOOK_AHEAD: Duration = Duration::from_millis(60);

/// What a claim may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// How much in all.
    pub(crate) room: u32,
    /// What is under way or in line, by lane.
    pub(crate) in_flight: Vec<(Lane, u32)>,
    /// How many more than its slots a lane may have.
    pub(crate) ahead: Vec<(Lane, u32)>,
    /// Lanes of which nothing is wanted.
    pub(crate) closed: Vec<Lane>,
}

/// What is known of lanes that may have more than they gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// Such lanes have just given something, and may have something in line.
    pub(crate) is_lasting: bool,
    /// One of them has room again, so more should be asked for at once.
    pub(crate) has_room: bool,
}

#[derive(Debug, Default)]
struct LaneUse {
    /// How many are under way or in line.
    in_flight: u32,
    slots: u32,
    may_wait: bool,
    /// How many attempts have ended since the last look.
    ended: u32,
    /// How many more than its slots it may have.
    ahead: u32,
    /// It was given as much as was asked for, so there may be more.
    is_short: bool,
    /// How many of its attempts were told that the receiver is gone, and are not settled yet.
    farewells: u32,
    /// When the last of these was settled, if something may come that was asked for before.
    settled_farewell_at: Option<Instant>,
}

impl LaneUse {
    fn most(&self) -> u32 {
        self.slots.saturating_add(self.ahead)
    }

    fn wants_more(&self) -> bool {
        self.is_short && self.in_flight < self.most() && self.farewells == 0
    }

    /// Whether what was asked for at this time may not begin.
    fn is_closed_to(&self, asked_at: Instant) -> bool {
        self.farewells > 0 || self.settled_farewell_at.is_some_and(|settled_at| asked_at <= settled_at)
    }

    fn is_forgettable(&self) -> bool {
        let has_news = self.farewells > 0 || self.settled_farewell_at.is_some();
        self.in_flight == 0 && self.ended == 0 && self.ahead == 0 && !has_news
    }
}

/// What is known of the lanes that something is under way or in line of, or was a moment ago.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    by_lane: HashMap<Lane, LaneUse>,
    in_flight: usize,
    ended: u32,
    ahead: u32,
    looked_at: Option<Instant>,
}

impl Lanes {
    /// How many more may be under way or in line, with so many slots in all.
    pub(super) fn room(&self, slots: u32) -> u32 {
        let most = slots.saturating_add(self.ahead.min(slots));
        most.saturating_sub(u32::try_from(self.in_flight).unwrap_or(u32::MAX))
    }

    /// Looks at how much has ended lately, and says what a claim may ask for.
    pub(super) fn ask(&mut self, slots: u32, now: Instant) -> Asked {
        let passed = self.looked_at.map(|before| now.saturating_duration_since(before));
        if passed.is_none_or(|passed| passed >= LOOK_AHEAD) {
            self.looked_at = Some(now);
            let lately = |ended: u32| {
                let share = passed.map_or(0.0, |passed| LOOK_AHEAD.as_secs_f64() / passed.as_secs_f64());
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a whole number")]
                let lately = (f64::from(ended) * share) as u32;
                lately
            };
            self.ahead = lately(std::mem::take(&mut self.ended));
            self.by_lane.retain(|_, lane| {
                lane.ahead = if lane.may_wait { lately(lane.ended) } else { 0 };
                lane.ended = 0;
                !lane.is_forgettable()
            });
        }
        // What was asked for earlier has come.
        for lane in self.by_lane.values_mut().filter(|lane| lane.in_flight == 0) {
            lane.settled_farewell_at = None;
        }
        // Nothing is asked for where there is no room, so there may be more.
        for lane in self.by_lane.values_mut().filter(|lane| lane.in_flight >= lane.most()) {
            lane.is_short = true;
        }
        let counted = |count: fn(&LaneUse) -> u32| {
            let counts = self.by_lane.iter().map(|(lane, it)| (lane, count(it))).filter(|(_, count)| *count > 0);
            counts.map(|(lane, count)| (lane.clone(), count)).collect()
        };
        let closed = self.by_lane.iter().filter(|(_, it)| it.farewells > 0).map(|(lane, _)| lane.clone()).collect();
        let (in_flight, ahead) = (counted(|lane| lane.in_flight), counted(|lane| lane.ahead));
        Asked { room: self.room(slots), in_flight, ahead, closed }
    }

    /// One was claimed from this lane.
    pub(super) fn add(&mut self, lane: &Lane, slots: u32, may_wait: bool) {
        let lane = entry(&mut self.by_lane, lane);
        lane.in_flight += 1;
        (lane.slots, lane.may_wait) = (slots, may_wait);
        if !may_wait {
            lane.ahead = 0;
        }
        self.in_flight += 1;
    }

    /// A claim was answered with so many of each lane, after a look at those that `visited` says.
    ///
    /// A lane that was given all that was asked for may have more. What came free while the claim was under way was not asked
    /// for, and nobody else would say so: the lane is below its limit, as one that has nothing left.
    pub(super) fn answered(
        &mut self,
        asked: &Asked,
        given: &HashMap<Lane, u32>,
        visited: impl Fn(&Lane) -> bool,
    ) -> Shortage {
        let before: HashMap<&Lane, u32> = asked.in_flight.iter().map(|(lane, count)| (lane, *count)).collect();
        let mut shortage = Shortage::default();
        for (lane, it) in &mut self.by_lane {
            let before = before.get(lane).copied().unwrap_or_default();
            match given.get(lane) {
                Some(given) => {
                    it.is_short = before + given >= it.most();
                    shortage.is_lasting |= it.is_short && it.may_wait;
                }
                None if before < it.most() && visited(lane) => it.is_short = false,
                None => {}
            }
            shortage.has_room |= it.wants_more();
        }
        shortage
    }

    /// One of this lane has ended, or was given back. Returns whether somebody may have waited for that.
    pub(super) fn remove(&mut self, lane: &Lane, has_ended: bool, slots: u32) -> bool {
        let had_room = self.room(slots) > 0;
        self.in_flight -= 1;
        self.ended += u32::from(has_ended);
        let Some(it) = self.by_lane.get_mut(lane) else { return !had_room };
        it.in_flight -= 1;
        it.ended += u32::from(has_ended);
        let wanted = !had_room || it.wants_more();
        if it.is_forgettable() {
            self.by_lane.remove(lane);
        }
        wanted
    }

    /// An attempt was told that this lane's receiver is gone.
    pub(super) fn close(&mut self, lane: &Lane) {
        entry(&mut self.by_lane, lane).farewells += 1;
    }

    /// The same is settled: whether the lane may have more is the store's to say to whoever asks from now on.
    pub(super) fn reopen(&mut self, lane: &Lane, now: Instant) {
        if let Some(it) = self.by_lane.get_mut(lane) {
            it.farewells -= 1;
            it.settled_farewell_at = Some(now);
        }
    }

    /// Whether what was asked for at this time may not begin.
    pub(super) fn is_closed_to(&self, lane: &Lane, asked_at: Instant) -> bool {
        self.by_lane.get(lane).is_some_and(|lane| lane.is_closed_to(asked_at))
    }
}

/// What a map has of a lane, which is copied only if it is new.
pub(super) fn entry<'m, V: Default>(map: &'m mut HashMap<Lane, V>, lane: &Lane) -> &'m mut V {
    if !map.contains_key(lane) {
        map.insert(lane.clone(), V::default());
    }
    map.get_mut(lane).expect("it is there")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: u32 = 100;

    fn lane() -> Lane {
        Lane("example.com".to_owned())
    }

    fn given(count: u32) -> HashMap<Lane, u32> {
        HashMap::from([(lane(), count)])
    }

    /// So many are claimed from a lane of eight slots. Returns what is known of shortages then.
    fn claim(lanes: &mut Lanes, count: u32, now: Instant) -> Shortage {
        let asked = lanes.ask(SLOTS, now);
        for _ in 0..count {
            lanes.add(&lane(), 8, true);
        }
        lanes.answered(&asked, &given(count), |_| true)
    }

    /// Returns whether somebody was waiting for any of them.
    fn end(lanes: &mut Lanes, count: u32) -> bool {
        (0..count).fold(false, |wanted, _| lanes.remove(&lane(), true, SLOTS) | wanted)
    }

    #[test]
    fn as_much_is_asked_for_ahead_as_ended_lately() {
        let mut lanes = Lanes::default();
        let start = Instant::now();
        claim(&mut lanes, 8, start);
        assert_eq!(lanes.ask(SLOTS, start).ahead, [], "nothing has ended");
        end(&mut lanes, 6);
        assert_eq!(lanes.ask(SLOTS, start + LOOK_AHEAD / 2).ahead, [], "it is not time yet");
        let later = start + 2 * LOOK_AHEAD;
        assert_eq!(lanes.ask(SLOTS, later).ahead, [(lane(), 3)], "six in twice the time");
        assert_eq!(lanes.ask(SLOTS, later).room, SLOTS + 3 - 2);
        let asked = lanes.ask(SLOTS, later + LOOK_AHEAD);
        assert_eq!((asked.ahead, asked.room), (vec![], SLOTS - 2), "nothing has ended since");
    }

    #[test]
    fn what_is_in_line_in_all_is_bounded_by_the_slots() {
        let mut lanes = Lanes::default();
        let start = Instant::now();
        lanes.ask(SLOTS, start);
        for _ in 0..50 {
            claim(&mut lanes, 8, start);
            end(&mut lanes, 8);
        }
        let asked = lanes.ask(SLOTS, start + LOOK_AHEAD);
        assert_eq!((asked.room, asked.ahead), (2 * SLOTS, vec![(lane(), 400)]));
    }

    #[test]
    fn a_lane_that_may_not_wait_has_nothing_ahead() {
        let mut lanes = Lanes::default();
        let start = Instant::now();
        lanes.ask(SLOTS, start);
        lanes.add(&lane(), 8, false);
        lanes.add(&lane(), 8, false);
        end(&mut lanes, 1);
        assert_eq!(lanes.ask(SLOTS, start + LOOK_AHEAD).ahead, []);
    }

    #[test]
    fn a_lane_that_gave_all_that_was_asked_for_wants_more_when_one_ends() {
        let mut lanes = Lanes::default();
        let now = Instant::now();
        assert_eq!(claim(&mut lanes, 7, now), Shortage::default());
        assert!(!end(&mut lanes, 1), "it had no more");
        assert_eq!(claim(&mut lanes, 2, now), Shortage { is_lasting: true, has_room: false });
        assert!(end(&mut lanes, 1));
        assert_eq!(claim(&mut lanes, 0, now), Shortage::default(), "it was looked at, and has no more");
        assert!(!end(&mut lanes, 1));
    }

    #[test]
    fn a_lane_that_was_not_looked_at_is_as_short_as_before() {
        let mut lanes = Lanes::default();
        let now = Instant::now();
        claim(&mut lanes, 8, now);
        let asked = lanes.ask(SLOTS, now);
        let shortage = lanes.answered(&asked, &HashMap::new(), |_| true);
        assert_eq!(shortage, Shortage::default(), "it hangs, and the others need not wait for it");
        assert!(end(&mut lanes, 1), "nothing was asked for, so it may have more");
        let asked = lanes.ask(SLOTS, now);
        let shortage = lanes.answered(&asked, &HashMap::new(), |_| false);
        assert_eq!(shortage, Shortage { is_lasting: false, has_room: true });
    }

    #[test]
    fn a_lane_that_has_more_than_it_may_have_by_now_is_short() {
        let mut lanes = Lanes::default();
        let start = Instant::now();
        claim(&mut lanes, 8, start);
        end(&mut lanes, 8);
        assert_eq!(claim(&mut lanes, 12, start + LOOK_AHEAD), Shortage::default(), "sixteen were allowed");
        // Nothing ends for a while, so that eight are allowed, and nothing can be asked for.
        let asked = lanes.ask(SLOTS, start + 3 * LOOK_AHEAD);
        lanes.answered(&asked, &HashMap::new(), |_| true);
        assert!(!end(&mut lanes, 4), "it has eight still");
        assert!(end(&mut lanes, 1));
    }

    #[test]
    fn a_lane_whose_receiver_is_gone_is_closed_until_all_that_told_so_are_settled() {
        let mut lanes = Lanes::default();
        let now = Instant::now();
        claim(&mut lanes, 8, now);
        lanes.close(&lane());
        lanes.close(&lane());
        assert!(!end(&mut lanes, 7), "nobody waits for its slots");
        assert!(lanes.is_closed_to(&lane(), now) && lanes.ask(SLOTS, now + LOOK_AHEAD).closed == [lane()]);
        let settled_at = now + 3 * LOOK_AHEAD;
        lanes.reopen(&lane(), settled_at);
        let later = settled_at + LOOK_AHEAD;
        assert!(lanes.is_closed_to(&lane(), later), "one is not settled");
        lanes.reopen(&lane(), settled_at);
        assert_eq!(lanes.ask(SLOTS, later).closed, [], "what the store says now counts");
        assert!(lanes.is_closed_to(&lane(), now), "but not what it said before");
        assert!(!lanes.is_closed_to(&lane(), later));
        end(&mut lanes, 1);
        lanes.ask(SLOTS, later + 2 * LOOK_AHEAD);
        lanes.ask(SLOTS, later + 4 * LOOK_AHEAD);
        assert!(lanes.by_lane.is_empty(), "in the end it is forgotten");
    }

    #[test]
    fn whoever_waits_for_any_room_at_all_is_told() {
        let mut lanes = Lanes::default();
        lanes.ask(2, Instant::now());
        lanes.add(&lane(), 8, true);
        lanes.add(&lane(), 8, true);
        assert_eq!(lanes.room(2), 0);
        assert!(lanes.remove(&lane(), false, 2));
        assert!(!lanes.remove(&lane(), false, 2));
        assert!(lanes.by_lane.is_empty(), "a lane without anything is forgotten");
    }
}
