//! How far a post has come, so that a timeout can say what it was waiting for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::outcome::Phase;

tokio::task_local! {
    /// The post on whose behalf the connector is called. The HTTP client gives its connector nothing but the URI.
    static FOLLOWED: Progress;
}

/// The furthest phase that a post has reached. Clones share it.
///
/// It only moves forward. A post may start to connect, be overtaken by a connection that came free, and be waiting for its
/// response while the connection it started is still being made, for others.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

impl Progress {
    /// Notes that `phase` has begun.
    pub(super) fn enter(&self, phase: Phase) {
        let rank = match phase {
            Phase::Resolving => 1,
            Phase::Connecting => 2,
            Phase::Handshaking => 3,
            Phase::Waiting => 4,
            Phase::Reading => 5,
        };
        self.0.fetch_max(rank, Ordering::Relaxed);
    }

    /// The phase it is in. A post that never asked for a connection was given a kept one, and waits for its response.
    pub(super) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            1 => Phase::Resolving,
            2 => Phase::Connecting,
            3 => Phase::Handshaking,
            5 => Phase::Reading,
            _ => Phase::Waiting,
        }
    }

    /// Runs `future` so that [`Progress::followed`] finds this post.
    pub(super) fn follow<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        FOLLOWED.scope(self.clone(), future)
    }

    /// The post on whose behalf the caller is running; a fresh one if there is none.
    pub(super) fn followed() -> Self {
        FOLLOWED.try_with(Self::clone).unwrap_or_default()
    }
}
