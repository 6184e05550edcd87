//! What was logged, for tests that look at it: every line at every level, formatted as people would see it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tracing::instrument::WithSubscriber;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::fmt::MakeWriter;

/// A collector of log lines. Clones share what they collected.
#[derive(Debug, Clone, Default)]
pub struct Logs {
    written: Arc<Mutex<Vec<u8>>>,
}

impl Logs {
    /// An empty collector.
    pub fn new() -> Self {
        Self::default()
    }

    /// The subscriber that writes here.
    pub fn subscriber(&self) -> impl Subscriber + Send + Sync + 'static {
        keep_a_second_subscriber();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(self.clone())
            .finish()
    }

    /// Collects what this thread logs until the guard is dropped: enough for a test on a current-thread runtime.
    #[must_use = "logs are collected until the guard is dropped"]
    pub fn collect_on_this_thread(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.subscriber())
    }

    /// Collects what this future logs, on whichever thread it runs. Tasks that it spawns need the same.
    pub fn collect<F: Future>(&self, future: F) -> impl Future<Output = F::Output> {
        future.with_subscriber(self.subscriber())
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }

    /// The lines so far that contain all of `parts`.
    pub fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text();
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
    }
}

/// While there is just one subscriber, `tracing` asks only the current thread's whether a line that is reached for the
/// first time is of interest, and remembers a no for every thread. Other tests' threads have none, so their no would
/// silence the line here too. With a second subscriber it asks all of them.
fn keep_a_second_subscriber() {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()));
}

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Logs {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_collected_on_this_thread_and_of_one_future() {
        let logs = Logs::new();
        {
            let _guard = logs.collect_on_this_thread();
            tracing::warn!(worker = "w1", "lease lost");
            tracing::trace!("even this");
        }
        tracing::error!("nobody listens");
        logs.collect(async { tracing::info!(worker = "w2", "lease lost") }).await;
        assert_eq!(logs.lines_with(&["lease lost"]).len(), 2);
        assert_eq!(logs.lines_with(&["WARN", "worker=\"w1\""]).len(), 1, "{}", logs.text());
        assert_eq!(logs.lines_with(&["even this"]).len(), 1);
        assert!(!logs.text().contains("nobody listens"));
    }
}
