//! SIGINT and SIGTERM: the first asks for an orderly end, the second does not ask.

use std::io::Write as _;

use crate::failure::{Exit, Failure};

/// Signals from now on. Made before the work starts, so that none is missed.
#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Catches signals.
    pub(crate) fn catch() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error: std::io::Error| Failure::new(Exit::Failed, "signals_unavailable", error.to_string());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next one, and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// Signals from now on.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Catches signals.
    pub(crate) fn catch() -> Result<Self, Failure> {
        Ok(Self)
    }

    /// Waits for the next one, and gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}

/// Ends the process without waiting for anything.
pub(crate) fn exit_at_once(signal: &str) -> ! {
    let _ =
        writeln!(std::io::stderr(), "{signal} again: stopping at once; what is in flight is taken up after its lease");
    std::process::exit(i32::from(Exit::Failed.code()))
}
