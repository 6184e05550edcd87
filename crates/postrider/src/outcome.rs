//! What happened in an attempt, and what follows from it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::DeliveryId;
use crate::refusal::Refusal;
use crate::retry::RetryPolicy;

/// What came of one POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver gave a complete HTTP answer, or at least as much of it as is kept.
    Response(Response),
    /// The attempt's one deadline passed.
    Timeout {
        /// What it was waiting for.
        during: Phase,
    },
    /// No TCP connection: refused, unreachable, reset.
    Connect {
        /// What the system said.
        detail: String,
    },
    /// No TLS session: certificate, name, version, garbage.
    Tls {
        /// What the TLS library said.
        detail: String,
    },
    /// The name has no address.
    Dns {
        /// What the resolver said.
        detail: String,
    },
    /// The destination is not one that may be dialled.
    Blocked(Refusal),
    /// What came back is not HTTP, or broke off.
    Protocol {
        /// What the HTTP library said.
        detail: String,
    },
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// How long it asks us to wait, on 429 and 503.
    pub retry_after: Option<Duration>,
    /// The first bytes of its body, as text that every store can keep.
    pub excerpt: String,
}

/// What an attempt was doing when its deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking up the name.
    Resolving,
    /// TCP.
    Connecting,
    /// TLS.
    Handshaking,
    /// Sending, and waiting for the head of the answer.
    Waiting,
    /// Reading the answer's body.
    Reading,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolving => "resolving the name",
            Self::Connecting => "connecting",
            Self::Handshaking => "negotiating TLS",
            Self::Waiting => "waiting for the response",
            Self::Reading => "reading the response body",
        })
    }
}

/// An outcome's name, in SQL, JSON and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    /// See [`Outcome::Response`].
    Response,
    /// See [`Outcome::Timeout`].
    Timeout,
    /// See [`Outcome::Connect`].
    Connect,
    /// See [`Outcome::Tls`].
    Tls,
    /// See [`Outcome::Dns`].
    Dns,
    /// See [`Outcome::Blocked`].
    Blocked,
    /// See [`Outcome::Protocol`].
    Protocol,
}

impl OutcomeKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Response, Self::Timeout, Self::Connect, Self::Tls, Self::Dns, Self::Blocked, Self::Protocol];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Timeout => "timeout",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Dns => "dns",
            Self::Blocked => "blocked",
            Self::Protocol => "protocol",
        }
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for OutcomeKind {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            Refusal::new("outcome_invalid", "outcome", format!("`{}` is not an outcome", text.escape_default()))
        })
    }
}

impl Outcome {
    /// Its name.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Response(_) => OutcomeKind::Response,
            Self::Timeout { .. } => OutcomeKind::Timeout,
            Self::Connect { .. } => OutcomeKind::Connect,
            Self::Tls { .. } => OutcomeKind::Tls,
            Self::Dns { .. } => OutcomeKind::Dns,
            Self::Blocked(_) => OutcomeKind::Blocked,
            Self::Protocol { .. } => OutcomeKind::Protocol,
        }
    }

    /// The answer's status, if there was an answer.
    pub fn status_code(&self) -> Option<u16> {
        match self {
            Self::Response(response) => Some(response.status),
            _ => None,
        }
    }

    /// A 2xx.
    pub fn is_success(&self) -> bool {
        self.status_code().is_some_and(|status| (200..300).contains(&status))
    }

    /// The receiver says that it is gone for good (410).
    pub fn disables_endpoint(&self) -> bool {
        self.status_code() == Some(410)
    }

    /// The first bytes of the answer's body, if there are any.
    pub fn excerpt(&self) -> Option<&str> {
        match self {
            Self::Response(response) if !response.excerpt.is_empty() => Some(&response.excerpt),
            _ => None,
        }
    }

    /// Why it failed, in one line; none for a success.
    pub fn error_detail(&self) -> Option<String> {
        match self {
            Self::Response(_) if self.is_success() => None,
            Self::Response(response) => {
                let line = response.excerpt.lines().next().unwrap_or_default().trim();
                let line: String = line.chars().take(200).collect();
                let colon = if line.is_empty() { "" } else { ": " };
                Some(format!("HTTP {}{colon}{line}", response.status))
            }
            Self::Timeout { during } => Some(format!("timeout: the deadline passed while {during}")),
            Self::Connect { detail } => Some(format!("connect: {detail}")),
            Self::Tls { detail } => Some(format!("tls: {detail}")),
            Self::Dns { detail } => Some(format!("dns: {detail}")),
            Self::Blocked(refusal) => Some(format!("blocked: {refusal}")),
            Self::Protocol { detail } => Some(format!("protocol: {detail}")),
        }
    }
}

/// What is done about an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Delivered,
    /// Another attempt, this long after the database's time of the settle.
    Retry {
        /// How long.
        after: Duration,
    },
    /// That was the last attempt.
    Dead,
}

/// The longest that a receiver's `Retry-After` is honoured.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

/// What follows from `outcome` in the `attempt`-th attempt (1-based) of a round.
///
/// `Retry-After` can only lengthen the scheduled delay: a receiver may ask for more time, not for more traffic.
pub fn verdict(outcome: &Outcome, attempt: u32, policy: &RetryPolicy, delivery: DeliveryId) -> Verdict {
    if outcome.is_success() {
        return Verdict::Delivered;
    }
    let Some(scheduled) = policy.delay_after(attempt, delivery) else {
        return Verdict::Dead;
    };
    let asked = match outcome {
        Outcome::Response(Response { status: 429 | 503, retry_after, .. }) => retry_after.unwrap_or_default(),
        _ => Duration::ZERO,
    };
    Verdict::Retry { after: scheduled.max(up_to_millisecond(asked.min(MAX_RETRY_AFTER))) }
}

/// Stores keep whole milliseconds, and a receiver's wait is not to be cut short by the rest.
fn up_to_millisecond(wait: Duration) -> Duration {
    let rest = wait.subsec_nanos() % 1_000_000;
    if rest == 0 { wait } else { wait + Duration::from_nanos(u64::from(1_000_000 - rest)) }
}
