//! Waking those who wait for something to become ready or to be announced.
//!
//! Within the process a commit bumps a number that waiters watch. Commits by other processes show in
//! `PRAGMA data_version`, which a waiter has the writer thread read from time to time: on the writer's own connection it
//! changes with *other* connections' commits only, so a busy dispatcher does not wake itself. While another process is at
//! work it is read often, so that what it enqueues goes out at once, and otherwise rarely, so that waiting costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::writer::Writer;

/// How often a waiter looks for commits by other processes, when there has been none for a while.
const LOOK_RARELY: Duration = Duration::from_millis(25);
/// How often it looks while another process is at work.
const LOOK_OFTEN: Duration = Duration::from_millis(2);
/// How long after a commit its process counts as being at work.
const AT_WORK: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) ready: Signal,
    pub(crate) announced: Signal,
    others: Others,
}

impl Wake {
    /// Another process committed something; what it was is not known.
    pub(crate) fn something_happened(&self) {
        self.others.committed(Instant::now());
        self.ready.happened();
        self.announced.happened();
    }

    /// Returns when something became ready, or may have, that was not attended to, or after `timeout`.
    pub(crate) async fn ready(&self, writer: &Writer, timeout: Duration) {
        self.ready.wait(writer, &self.others, timeout).await;
    }

    /// Returns when something was announced, or may have been, that was not attended to, or after `timeout`.
    pub(crate) async fn announced(&self, writer: &Writer, timeout: Duration) {
        self.announced.wait(writer, &self.others, timeout).await;
    }
}

/// What is known of the other processes.
#[derive(Debug, Default)]
struct Others {
    last_commit_at: Mutex<Option<Instant>>,
}

impl Others {
    fn committed(&self, now: Instant) {
        *self.last_commit_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// How long to wait before the next look.
    fn pause(&self, now: Instant) -> Duration {
        let last_commit_at = *self.last_commit_at.lock().unwrap_or_else(PoisonError::into_inner);
        let are_at_work = last_commit_at.is_some_and(|at| now.saturating_duration_since(at) < AT_WORK);
        if are_at_work { LOOK_OFTEN } else { LOOK_RARELY }
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
    async fn wait(&self, writer: &Writer, others: &Others, timeout: Duration) {
        let deadline = Instant::now() + timeout.min(Duration::from_hours(1));
        let mut happened = self.happened.subscribe();
        // Looked at once: another waiter that is woken first, and attends to it, must not hide it from this one.
        let attended = self.attended.load(Ordering::SeqCst);
        loop {
            let now = Instant::now();
            let look_at = (now + others.pause(now)).min(deadline);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_often_while_another_process_is_at_work() {
        let (others, now) = (Others::default(), Instant::now());
        assert_eq!(others.pause(now), LOOK_RARELY);
        others.committed(now);
        assert_eq!(others.pause(now), LOOK_OFTEN);
        assert_eq!(others.pause(now + AT_WORK / 2), LOOK_OFTEN);
        assert_eq!(others.pause(now + AT_WORK), LOOK_RARELY);
    }
}
