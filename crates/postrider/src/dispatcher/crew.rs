//! The tasks that make attempts: one flies one flight after the other.
//!
//! A task for each flight would be made and done away with for each, with a few kilobytes, which costs as much as
//! signing does. So a task that has ended its flight waits for the next. There are as many as flights were ever under way
//! at once. One whose flight panics is gone, and another takes its place when it is missing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::flight::Flight;
use crate::store::Settle;

pub(super) struct Crew {
    roster: Arc<Roster>,
    results: mpsc::Sender<Settle>,
}

struct Roster {
    /// How many tasks wait at most. One more that ends its flight ends as well.
    most: usize,
    queue: Mutex<Queue>,
    /// As many as there are flights that nobody has taken.
    called: Semaphore,
}

#[derive(Default)]
struct Queue {
    flights: VecDeque<Flight>,
    /// How many tasks wait, beyond those that the flights above are for.
    idle: usize,
}

impl Roster {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds this lock")
    }

    async fn next(&self) -> Flight {
        self.called.acquire().await.expect("nobody closes it").forget();
        self.queue().flights.pop_front().expect("each call is for a flight")
    }

    /// A task has ended its flight. False if there are enough without it.
    fn wait_again(&self) -> bool {
        let mut queue = self.queue();
        let is_wanted = queue.idle < self.most;
        queue.idle += usize::from(is_wanted);
        is_wanted
    }
}

impl Crew {
    pub(super) fn new(most: usize, results: mpsc::Sender<Settle>) -> Self {
        let roster = Roster { most, queue: Mutex::default(), called: Semaphore::new(0) };
        Self { roster: Arc::new(roster), results }
    }

    /// Has these flights flown, each at once.
    pub(super) fn fly(&self, flights: impl Iterator<Item = Flight>, tasks: &mut JoinSet<()>) {
        let (added, missing) = {
            let mut queue = self.roster.queue();
            let before = queue.flights.len();
            queue.flights.extend(flights);
            let added = queue.flights.len() - before;
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
