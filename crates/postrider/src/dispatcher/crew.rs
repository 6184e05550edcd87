//! The tasks that make attempts: one flies one flight after the other.
//!
//! A task for each flight would be made and done away with for each, with a few kilobytes, which costs as much as
//! signing does. So a task that has ended its flight waits for the next. There are as many as flights were ever under way
//! at once. One whose flight panics is gone, and another takes its place when it is missing.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::store::Settle;

/// What a task of the crew does from beginning to end.
pub(super) trait Duty: Send + 'static {
    /// Does it, and hands over what came of it.
    fn run(self, results: &mpsc::Sender<Settle>) -> impl Future<Output = ()> + Send;
}

pub(super) struct Crew<D> {
    roster: Arc<Roster<D>>,
    results: mpsc::Sender<Settle>,
}

struct Roster<D> {
    /// How many tasks wait at most. One more that ends its flight ends as well.
    most: usize,
    queue: Mutex<Queue<D>>,
    /// As many as there are in the queue.
    called: Semaphore,
}

struct Queue<D> {
    waiting: VecDeque<D>,
    /// How many tasks wait, beyond those that the ones above are for.
    idle: usize,
}

impl<D> Roster<D> {
    fn queue(&self) -> MutexGuard<'_, Queue<D>> {
        self.queue.lock().expect("no code panics while it holds this lock")
    }

    async fn next(&self) -> D {
        self.called.acquire().await.expect("nobody closes it").forget();
        self.queue().waiting.pop_front().expect("each call is for one in the queue")
    }

    /// A task has done its duty. False if there are enough without it.
    fn wait_again(&self) -> bool {
        let mut queue = self.queue();
        let is_wanted = queue.idle < self.most;
        queue.idle += usize::from(is_wanted);
        is_wanted
    }
}

impl<D: Duty> Crew<D> {
    pub(super) fn new(most: usize, results: mpsc::Sender<Settle>) -> Self {
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), idle: 0 });
        let roster = Roster { most, queue, called: Semaphore::new(0) };
        Self { roster: Arc::new(roster), results }
    }

    /// Has these done, all at once.
    pub(super) fn call(&self, duties: impl Iterator<Item = D>, tasks: &mut JoinSet<()>) {
        let (added, missing) = {
            let mut queue = self.roster.queue();
            let before = queue.waiting.len();
            queue.waiting.extend(duties);
            let added = queue.waiting.len() - before;
            let missing = added.saturating_sub(queue.idle);
            queue.idle -= added - missing;
            (added, missing)
        };
        for _ in 0..missing {
            let (roster, results) = (Arc::clone(&self.roster), self.results.clone());
            tasks.spawn(async move {
                loop {
                    roster.next().await.run(&results).await;
                    if !roster.wait_again() {
                        return;
                    }
                }
            });
        }
        self.roster.called.add_permits(added);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Barrier;

    use super::*;

    /// Meets the others, if it is told to, and is done; or panics.
    struct Errand {
        meet: Option<Arc<Barrier>>,
        panics: bool,
        done: Arc<AtomicUsize>,
    }

    impl Duty for Errand {
        async fn run(self, _results: &mpsc::Sender<Settle>) {
            if let Some(barrier) = self.meet {
                barrier.wait().await;
            }
            assert!(!self.panics, "as it was told to");
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Office {
        crew: Crew<Errand>,
        tasks: JoinSet<()>,
        done: Arc<AtomicUsize>,
    }

    impl Office {
        fn new(most: usize) -> Self {
            Self { crew: Crew::new(most, mpsc::channel(1).0), tasks: JoinSet::new(), done: Arc::default() }
        }

        fn call(&mut self, count: usize, meet: Option<&Arc<Barrier>>, panics: bool) {
            let done = Arc::clone(&self.done);
            let errand = move |_| Errand { meet: meet.cloned(), panics, done: Arc::clone(&done) };
            self.crew.call((0..count).map(errand), &mut self.tasks);
        }

        /// Until all of these are done and their tasks wait again.
        async fn all_wait(&self, done: usize, idle: usize) {
            let settled = async {
                while self.done.load(Ordering::SeqCst) < done || self.crew.roster.queue().idle < idle {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), settled).await.expect("done long before");
            assert_eq!(self.done.load(Ordering::SeqCst), done);
        }
    }

    #[tokio::test]
    async fn all_are_at_work_at_once_and_the_same_tasks_do_the_next() {
        let mut office = Office::new(8);
        for round in 1..=3 {
            office.call(5, Some(&Arc::new(Barrier::new(5))), false);
            office.all_wait(5 * round, 5).await;
            assert_eq!(office.tasks.len(), 5);
        }
        office.call(7, Some(&Arc::new(Barrier::new(7))), false);
        office.all_wait(22, 7).await;
        assert_eq!(office.tasks.len(), 7);
    }

    #[tokio::test]
    async fn one_that_panics_is_replaced() {
        let mut office = Office::new(8);
        office.call(2, None, true);
        for _ in 0..2 {
            let ended = office.tasks.join_next().await.expect("two tasks");
            assert!(ended.expect_err("it panics").is_panic());
        }
        office.call(2, Some(&Arc::new(Barrier::new(2))), false);
        office.all_wait(2, 2).await;
    }

    #[tokio::test]
    async fn more_than_may_wait_end() {
        let mut office = Office::new(2);
        office.call(5, Some(&Arc::new(Barrier::new(5))), false);
        office.all_wait(5, 2).await;
        for _ in 0..3 {
            office.tasks.join_next().await.expect("five tasks").expect("it just ends");
        }
        assert_eq!(office.tasks.len(), 2);
    }
}
