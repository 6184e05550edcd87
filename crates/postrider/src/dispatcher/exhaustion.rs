//! What is done when this process has no file descriptor left to dial with: the delivery is given back uncharged, after a
//! while, and the log says so now and then rather than once per attempt.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lease::WorkerId;
use crate::transport::Exhausted;

/// How long an attempt that found none keeps its slot.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// How often it is told.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// When it was told last, and how many attempts it has cost since.
#[derive(Debug, Default)]
pub(super) struct Exhaustion(Mutex<(Option<Instant>, u64)>);

impl Exhaustion {
    pub(super) fn tell(&self, worker: &WorkerId, exhausted: &Exhausted) {
        if let Some(attempts) = self.due(Instant::now()) {
            tracing::error!(
                worker_id = %worker,
                code = "descriptors_exhausted",
                attempts,
                "not sent, and not held against the receivers: {exhausted}; raise the limit of open files, or lower max_in_flight"
            );
        }
    }

    /// Counts one; how many there were, if it is time to tell.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().expect("no code panics while it holds this lock");
        let (told, attempts) = &mut *state;
        *attempts += 1;
        if told.is_some_and(|told| now - told < TELL_EVERY) {
            return None;
        }
        *told = Some(now);
        Some(std::mem::take(attempts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_at_once_and_then_now_and_then() {
        let exhaustion = Exhaustion::default();
        let start = Instant::now();
        assert_eq!(exhaustion.due(start), Some(1));
        assert_eq!(exhaustion.due(start + Duration::from_secs(1)), None);
        assert_eq!(exhaustion.due(start + Duration::from_secs(9)), None);
        assert_eq!(exhaustion.due(start + TELL_EVERY), Some(3));
        assert_eq!(exhaustion.due(start + TELL_EVERY), None);
    }
}
