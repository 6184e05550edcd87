//! Leases: who may settle a delivery, and for how long.
//!
//! A claim grants one lease per delivery. The lease is a row that the store keeps: delivery, owner, random token,
//! `lease_until`. **Holding the row is the right to settle; settling deletes it.** Renewing and settling name the
//! delivery, the owner *and* the token. The owner alone would not do: a worker whose lease lapsed can claim the same
//! delivery again, and its older task would then settle the newer claim. A counter would not do either: after a
//! failover that loses the end of the log it can repeat. A random token never does.
//!
//! `lease_until` decides one thing only: from when on *another* worker may take the delivery over. It is the
//! database's time. A holder whose row is still there may settle, however late.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::DeliveryId;

/// Names one running dispatcher. New at each start, so that a restarted process is a different owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkerId(String);

/// A worker's name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("worker_id has 1 to 200 printable ASCII characters, this one is `{0}`")]
pub struct InvalidWorkerId(String);

impl WorkerId {
    /// A worker of this name.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidWorkerId> {
        let name = name.into();
        if (1..=200).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(name))
        } else {
            Err(InvalidWorkerId(name.chars().take(64).collect()))
        }
    }

    /// This host's name and a random part.
    pub fn random() -> Self {
        let host = std::env::var("HOSTNAME")
            .ok()
            .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
            .unwrap_or_default();
        let host: String = host.trim().chars().filter(char::is_ascii_graphic).take(100).collect();
        let random = Uuid::new_v4().simple().to_string();
        let host = if host.is_empty() { "worker" } else { &host };
        Self(format!("{host}-{}", &random[..12]))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What tells one claim of a delivery from every other claim of it. Minted by the store, at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub Uuid);

/// The right to settle one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Which delivery.
    pub delivery_id: DeliveryId,
    /// Which claim of it.
    pub token: LeaseToken,
}

/// How long a lease lasts, and how often it is renewed: a third of it, at least 100 ms, always less than the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerm {
    lease: Duration,
    heartbeat: Duration,
}

/// A lease that no heartbeat can keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLease {
    /// The heartbeat is at least 100 ms and must be shorter than the lease.
    #[error(
        "lease_too_short: a lease of {0:?} cannot be renewed in time, because heartbeats are at least 100ms apart; \
         set `lease` to more than 100ms (default 30s)"
    )]
    TooShort(Duration),
    /// A crashed worker's deliveries would wait that long.
    #[error(
        "lease_too_long: a lease of {0:?} would keep a crashed worker's deliveries waiting; set `lease` to at most 1h"
    )]
    TooLong(Duration),
}

impl LeaseTerm {
    const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);
    const LONGEST_LEASE: Duration = Duration::from_hours(1);

    /// The term of a lease this long.
    pub fn new(lease: Duration) -> Result<Self, InvalidLease> {
        let heartbeat = (lease / 3).max(Self::SHORTEST_HEARTBEAT);
        if heartbeat >= lease {
            return Err(InvalidLease::TooShort(lease));
        }
        if lease > Self::LONGEST_LEASE {
            return Err(InvalidLease::TooLong(lease));
        }
        Ok(Self { lease, heartbeat })
    }

    /// How long a claim or a renewal grants.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How often the holder renews.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }
}

impl Default for LeaseTerm {
    fn default() -> Self {
        Self::new(Duration::from_secs(30)).expect("30 seconds is a valid lease")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heartbeat_is_a_third_of_the_lease_and_at_least_100_ms() {
        for (lease_ms, heartbeat_ms) in [(30_000, 10_000), (900, 300), (300, 100), (200, 100), (101, 100)] {
            let term = LeaseTerm::new(Duration::from_millis(lease_ms)).unwrap();
            assert_eq!(term.heartbeat(), Duration::from_millis(heartbeat_ms), "lease of {lease_ms} ms");
            assert!(term.heartbeat() < term.lease());
        }
    }

    #[test]
    fn a_lease_that_no_heartbeat_can_keep_does_not_exist() {
        for lease_ms in [0, 1, 99, 100] {
            let error = LeaseTerm::new(Duration::from_millis(lease_ms)).unwrap_err();
            assert!(error.to_string().starts_with("lease_too_short"), "{error}");
        }
        let error = LeaseTerm::new(Duration::from_hours(2)).unwrap_err();
        assert!(error.to_string().starts_with("lease_too_long"), "{error}");
    }

    #[test]
    fn random_worker_ids_differ() {
        let worker = WorkerId::random();
        assert_ne!(worker, WorkerId::random());
        assert_eq!(WorkerId::new(worker.as_str()), Ok(worker));
        for name in ["", "two words", "né", &"x".repeat(201)] {
            assert!(WorkerId::new(name).is_err(), "{name}");
        }
    }
}
