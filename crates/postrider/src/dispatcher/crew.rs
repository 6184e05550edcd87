//! The tasks that make attempts: one flies one flight after the other.
//!
//! There are as many as attempts may be under way, and no more than were ever needed at once. A task for each flight would be
//! made and done away with for each, with a few kilobytes, which costs as much as signing does. One whose flight
//! panics is gone, and another takes its place when it is missing.
//!
//! How many of them are at work is a matter of [pace](super::pace). What comes while no more may be, or while its lane has as many under
//! way as it may, waits in the line of its lane. Lanes take turns.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::lanes::entry;
use super::pace::{Pace, Sight};
use crate::store::{Lane, Settle};

/// What a task of the crew does from beginning to end.
pub(super) trait Duty: Send + 'static {
    /// The lane that it is of.
    fn lane(&self) -> &Lane;

    /// Does it, and hands over what came of it.
    fn run(self, results: &mpsc::Sender<Settle>) -> impl Future<Output = ()> + Send;
}

#[derive(Debug)]
pub(super) struct Crew<D> {
    roster: Arc<Roster<D>>,
    results: mpsc::Sender<Settle>,
}

/// What waits for a task of the crew.
#[derive(Debug)]
pub(super) struct InLine<D>(Arc<Roster<D>>);

#[derive(Debug)]
struct Roster<D> {
    /// How many tasks there are at most.
    most: u32,
    /// How many of them are at work for one lane at most.
    most_per_lane: u32,
    queues: Mutex<Queues<D>>,
    /// Told when something has been left in line.
    left_in_line: Notify,
}

#[derive(Debug)]
struct Queues<D> {
    by_lane: HashMap<Lane, Queue<D>>,
    /// Lanes in which something waits that may begin, each once.
    turns: VecDeque<Lane>,
    /// How many wait.
    waiting: usize,
    tasks: u32,
    /// How many of them are at work.
    at_work: u32,
    pace: Pace,
    /// More was left behind when the last ones were called.
    more_waits: bool,
    /// Tasks without a duty.
    idle: Vec<oneshot::Sender<D>>,
}

#[derive(Debug)]
struct Queue<D> {
    /// With when they came.
    waiting: VecDeque<(Instant, D)>,
    at_work: u32,
    /// It is among the turns.
    has_turn: bool,
}

impl<D> Default for Queue<D> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), at_work: 0, has_turn: false }
    }
}

impl<D: Duty> Queues<D> {
    /// Gives a lane a turn, if it may have one. Forgets it, if there is nothing to remember.
    fn consider(&mut self, lane: &Lane, most_at_work: u32) {
        let Some(queue) = self.by_lane.get_mut(lane) else { return };
        if !queue.has_turn && !queue.waiting.is_empty() && queue.at_work < most_at_work {
            queue.has_turn = true;
            self.turns.push_back(lane.clone());
        } else if !queue.has_turn && queue.waiting.is_empty() && queue.at_work == 0 {
            self.by_lane.remove(lane);
        }
    }

    /// The next that may begin.
    fn take(&mut self, most_at_work: u32) -> Option<(Instant, D)> {
        while self.at_work < self.pace.limit() {
            let lane = self.turns.pop_front()?;
            let queue = self.by_lane.get_mut(&lane).expect("a lane with a turn is there");
            queue.has_turn = false;
            let next = queue.waiting.pop_front();
            queue.at_work += u32::from(next.is_some());
            if !queue.waiting.is_empty() && queue.at_work < most_at_work {
                queue.has_turn = true;
                self.turns.push_back(lane);
            } else if queue.waiting.is_empty() && queue.at_work == 0 {
                self.by_lane.remove(&lane);
            }
            if next.is_some() {
                self.waiting -= 1;
                self.at_work += 1;
                return next;
            }
        }
        None
    }

    /// Has tasks without a duty begin what may begin.
    fn employ_idle(&mut self, most_at_work: u32) {
        while let Some(hand) = self.idle.pop() {
            if hand.is_closed() {
                continue; // That task is gone.
            }
            let Some((came_at, duty)) = self.take(most_at_work) else {
                self.idle.push(hand);
                return;
            };
            if let Err(duty) = hand.send(duty) {
                self.put_back(duty, came_at, most_at_work);
            }
        }
    }

    /// Takes back what could not begin.
    fn put_back(&mut self, duty: D, came_at: Instant, most_at_work: u32) {
        let lane = duty.lane().clone();
        self.waiting += 1;
        entry(&mut self.by_lane, &lane).waiting.push_front((came_at, duty));
        self.end(&lane, most_at_work);
    }

    /// One of this lane is not under way any more.
    fn end(&mut self, lane: &Lane, most_at_work: u32) {
        self.at_work -= 1;
        if let Some(queue) = self.by_lane.get_mut(lane) {
            queue.at_work -= 1;
        }
        self.consider(lane, most_at_work);
    }

    /// Looks at what is under way, after so many have ended, for how many may be from now on.
    fn look(&mut self, ended: u32, now: Instant) {
        let is_full = self.at_work + ended >= self.pace.limit();
        let (holds_up, more_waits) = (is_full && !self.turns.is_empty(), self.more_waits);
        self.pace.observe(Sight { now, ended, at_work: self.at_work, holds_up, more_waits });
    }
}

impl<D: Duty> Roster<D> {
    fn queues(&self) -> MutexGuard<'_, Queues<D>> {
        self.queues.lock().expect("no code panics while it holds this lock")
    }

    async fn next(&self) -> Option<D> {
        let handed_over = {
            let mut queues = self.queues();
            if let Some((_, duty)) = queues.take(self.most_per_lane) {
                return Some(duty);
            }
            let (hand, handed_over) = oneshot::channel();
            queues.idle.push(hand);
            handed_over
        };
        handed_over.await.ok()
    }

    /// What a task does: this duty, and then one after the other, as they come.
    async fn work(self: &Arc<Self>, first: D, results: &mpsc::Sender<Settle>) {
        let _employed = Employed(self);
        let mut next = Some(first);
        while let Some(duty) = next {
            let at_work = AtWork { roster: self, lane: duty.lane().clone() };
            duty.run(results).await;
            drop(at_work);
            next = self.next().await;
        }
    }
}

/// One of the tasks, until it ends or panics.
struct Employed<'a, D: Duty>(&'a Roster<D>);

impl<D: Duty> Drop for Employed<'_, D> {
    fn drop(&mut self) {
        self.0.queues().tasks -= 1;
    }
}

/// That a task is at work for a lane, until it is done or panics.
struct AtWork<'a, D: Duty> {
    roster: &'a Roster<D>,
    lane: Lane,
}

impl<D: Duty> Drop for AtWork<'_, D> {
    fn drop(&mut self) {
        let mut queues = self.roster.queues();
        queues.end(&self.lane, self.roster.most_per_lane);
        queues.look(1, Instant::now());
        // Its own task takes the next one, but more may be allowed by now.
        if queues.at_work + 1 < queues.pace.limit() {
            queues.employ_idle(self.roster.most_per_lane);
        }
    }
}

impl<D: Duty> Crew<D> {
    pub(super) fn new(most: u32, most_per_lane: u32, results: mpsc::Sender<Settle>) -> Self {
        let queues = Queues {
            by_lane: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            tasks: 0,
            at_work: 0,
            pace: Pace::new(most),
            more_waits: false,
            idle: Vec::new(),
        };
        let roster = Roster { most, most_per_lane, queues: Mutex::new(queues), left_in_line: Notify::new() };
        Self { roster: Arc::new(roster), results }
    }

    /// Has these done: at once, as far as there are tasks for them, and otherwise in their turn. `more_waits` says that these are
    /// not all.
    pub(super) fn call(
        &self,
        duties: impl Iterator<Item = D>,
        more_waits: bool,
        now: Instant,
        tasks: &mut JoinSet<()>,
    ) {
        let roster = &self.roster;
        let mut queues = roster.queues();
        queues.more_waits = more_waits;
        for duty in duties {
            let lane = duty.lane().clone();
            entry(&mut queues.by_lane, &lane).waiting.push_back((now, duty));
            queues.waiting += 1;
            queues.consider(&lane, roster.most_per_lane);
        }
        queues.look(0, now);
        queues.employ_idle(roster.most_per_lane);
        while queues.tasks < roster.most {
            let Some((_, duty)) = queues.take(roster.most_per_lane) else { break };
            queues.tasks += 1;
            let (roster, results) = (Arc::clone(roster), self.results.clone());
            tasks.spawn(async move { roster.work(duty, &results).await });
        }
        let are_left = queues.waiting > 0;
        drop(queues);
        if are_left {
            roster.left_in_line.notify_one();
        }
    }

    /// What waits for one of its tasks.
    pub(super) fn in_line(&self) -> InLine<D> {
        InLine(Arc::clone(&self.roster))
    }
}

impl<D: Duty> InLine<D> {
    /// Waits until something has been left there.
    pub(super) async fn something(&self) {
        self.0.left_in_line.notified().await;
    }

    /// Has more begin, if too few end. Those that end look themselves, but all that are under way may hang.
    pub(super) fn look(&self, now: Instant) {
        let mut queues = self.0.queues();
        queues.look(0, now);
        queues.employ_idle(self.0.most_per_lane);
    }

    /// Takes out what came before this time.
    pub(super) fn recall(&self, before: Instant) -> Vec<D> {
        let mut recalled = Vec::new();
        let mut queues = self.0.queues();
        for queue in queues.by_lane.values_mut() {
            let late = queue.waiting.partition_point(|(came_at, _)| *came_at <= before);
            recalled.extend(queue.waiting.drain(..late).map(|(_, duty)| duty));
        }
        queues.waiting -= recalled.len();
        if queues.waiting > 0 {
            self.0.left_in_line.notify_one();
        }
        recalled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    /// Waits until it may end, or panics at once.
    struct Errand {
        lane: Lane,
        panics: bool,
        done: Arc<Done>,
    }

    /// What has been done, by whom nobody asks.
    struct Done {
        begun: Mutex<Vec<Lane>>,
        may_end: Semaphore,
        ended: AtomicUsize,
    }

    impl Duty for Errand {
        fn lane(&self) -> &Lane {
            &self.lane
        }

        async fn run(self, _results: &mpsc::Sender<Settle>) {
            self.done.begun.lock().unwrap().push(self.lane.clone());
            assert!(!self.panics, "as it was told to");
            self.done.may_end.acquire().await.expect("nobody closes it").forget();
            self.done.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Office {
        crew: Crew<Errand>,
        tasks: JoinSet<()>,
        done: Arc<Done>,
        now: Instant,
    }

    impl Office {
        fn new(most: u32, most_per_lane: u32) -> Self {
            let done = Done { begun: Mutex::default(), may_end: Semaphore::new(0), ended: AtomicUsize::new(0) };
            Self {
                crew: Crew::new(most, most_per_lane, mpsc::channel(1).0),
                tasks: JoinSet::new(),
                done: Arc::new(done),
                now: Instant::now(),
            }
        }

        /// An errand for each letter, which is its lane.
        fn call(&mut self, lanes: &str, panics: bool) {
            let done = Arc::clone(&self.done);
            let errand = move |lane: char| Errand { lane: Lane(lane.into()), panics, done: Arc::clone(&done) };
            self.crew.call(lanes.chars().map(errand), false, self.now, &mut self.tasks);
        }

        fn let_end(&self, count: usize) {
            self.done.may_end.add_permits(count);
        }

        fn waiting(&self) -> usize {
            self.crew.roster.queues().waiting
        }

        /// The lanes of all that has begun, once it is so many and nobody has anything to do any more.
        async fn begun(&self, count: usize) -> String {
            let begun = || self.done.begun.lock().unwrap().iter().map(|lane| lane.0.clone()).collect::<String>();
            let settled = async {
                while begun().len() < count {
                    tokio::task::yield_now().await;
                }
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), settled).await.expect("begun long before");
            begun()
        }
    }

    #[tokio::test]
    async fn all_are_at_work_at_once_and_the_same_tasks_do_the_next() {
        let mut office = Office::new(8, 8);
        for round in 1..=3 {
            office.call("aaaaa", false);
            assert_eq!(office.begun(5 * round).await.len(), 5 * round);
            office.let_end(5);
            office.begun(5 * round).await;
            assert_eq!((office.tasks.len(), office.done.ended.load(Ordering::SeqCst)), (5, 5 * round));
        }
        office.call("aaaaaaa", false);
        assert_eq!(office.begun(22).await.len(), 22);
        assert_eq!(office.tasks.len(), 7);
    }

    #[tokio::test]
    async fn no_more_are_at_work_than_may_be_and_the_others_follow_one_by_one() {
        let mut office = Office::new(3, 3);
        office.call("abcde", false);
        assert_eq!(office.begun(3).await, "abc");
        assert_eq!((office.waiting(), office.tasks.len()), (2, 3));
        office.let_end(1);
        assert_eq!(office.begun(4).await, "abcd");
        office.let_end(1);
        assert_eq!(office.begun(5).await, "abcde");
        assert_eq!((office.waiting(), office.tasks.len()), (0, 3));
    }

    #[tokio::test]
    async fn a_lane_has_its_share_and_does_not_hold_up_the_others() {
        let mut office = Office::new(4, 2);
        office.call("aaaaabc", false);
        let mut begun: Vec<char> = office.begun(4).await.chars().collect();
        begun.sort_unstable();
        assert_eq!(begun, ['a', 'a', 'b', 'c'], "two of its lane are at work");
        office.call("d", false);
        assert_eq!((office.begun(4).await.len(), office.waiting()), (4, 4), "all four tasks are at work");
        office.let_end(100);
        let begun = office.begun(8).await;
        assert_eq!((begun.len(), office.waiting()), (8, 0));
        assert!(office.crew.roster.queues().by_lane.is_empty(), "lanes without anything are forgotten");
    }

    #[tokio::test]
    async fn lanes_take_turns() {
        let mut office = Office::new(1, 1);
        office.call("aaabbc", false);
        office.let_end(100);
        assert_eq!(office.begun(6).await, "abcaba");
    }

    #[tokio::test]
    async fn while_a_few_are_enough_the_others_wait_and_when_they_are_not_all_begin() {
        let mut office = Office::new(128, 128);
        office.call(&"a".repeat(128), false);
        office.let_end(128);
        assert_eq!(office.begun(128).await.len(), 128);
        office.crew.roster.queues().pace = Pace::at_few(128, office.now);
        office.call(&"a".repeat(128), false);
        assert_eq!(office.begun(128 + 64).await.len(), 128 + 64);
        office.let_end(1);
        assert_eq!(office.begun(128 + 65).await.len(), 128 + 65, "one follows one");
        office.crew.in_line().look(office.now + Duration::from_secs(1));
        assert_eq!(office.begun(256).await.len(), 256, "far fewer end than did before");
    }

    #[tokio::test]
    async fn one_that_panics_is_replaced_and_its_lane_goes_on() {
        let mut office = Office::new(2, 1);
        office.call("ab", true);
        for _ in 0..2 {
            let ended = office.tasks.join_next().await.expect("two tasks");
            assert!(ended.expect_err("it panics").is_panic());
        }
        office.call("ab", false);
        assert_eq!(office.begun(4).await.len(), 4);
    }

    #[tokio::test]
    async fn what_has_waited_is_taken_back_and_what_has_begun_is_not() {
        let mut office = Office::new(2, 2);
        let in_line = office.crew.in_line();
        office.call("abab", false);
        tokio::time::timeout(Duration::from_secs(10), in_line.something()).await.expect("two are in line");
        let first = office.now;
        office.now += Duration::from_secs(1);
        office.call("a", false);
        office.begun(2).await;
        assert_eq!(in_line.recall(first).len(), 2);
        tokio::time::timeout(Duration::from_secs(10), in_line.something()).await.expect("one is still in line");
        office.let_end(100);
        assert_eq!(office.begun(3).await.len(), 3);
        assert_eq!((office.waiting(), in_line.recall(office.now).len()), (0, 0));
        assert!(office.crew.roster.queues().by_lane.is_empty());
    }
}
