//! Waking those who wait for something to become ready or to be announced.
//!
//! Within the process a commit bumps a number that waiters watch. Commits by other processes show in
//! `PRAGMA data_version`, which a waiter has the writer thread read every 25 ms: on the writer's own connection it
//! changes with *other* connections' commits only, so a busy dispatcher does not wake itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::writer::Writer;

/// How often a waiter looks for commits by other processes.
const LOOK_EVERY: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) ready: Signal,
    pub(crate) announced: Signal,
}

impl Wake {
    /// Another process committed something; what it was is not known.
    pub(crate) fn something_happened(&self) {
        self.ready.happened();
        self.announced.happened();
    }
}

/// How often something happened, and how much of that has been attended to: a wait that begins between the two returns
/// at once, so nothing is missed in the gap between a look and a wait.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    happened: watch::Sender<u64>,
    attended: AtomicU64,
}

impl Signal {
    pub(crate) fn happened(&self) {
        self.happened.send_modify(|count| *count += 1);
    }

    /// Called before looking at everything that has happened so far.
    pub(crate) fn attend(&self) {
        self.attended.store(*self.happened.borrow(), Ordering::SeqCst);
    }

    /// Returns when something happened that was not attended to, or after `timeout`.
    pub(crate) async fn wait(&self, writer: &Writer, timeout: Duration) {
        let deadline = Instant::now() + timeout.min(Duration::from_hours(1));
        let mut happened = self.happened.subscribe();
        // Looked at once: another waiter that is woken first, and attends to it, must not hide it from this one.
        let attended = self.attended.load(Ordering::SeqCst);
        loop {
            let look_at = (Instant::now() + LOOK_EVERY).min(deadline);
            let unattended = happened.wait_for(|count| *count != attended);
            if timeout_at(look_at, unattended).await.is_ok() || Instant::now() >= deadline {
                return;
            }
            if writer.look().await.is_err() {
                // The store is out of order. Callers find that out by themselves, but not in a busy loop.
                sleep_until(deadline).await;
                return;
            }
        }
    }
}
