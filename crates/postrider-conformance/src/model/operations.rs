//! Random operations.

use std::time::Duration;

use postrider::{DeliveryStatus, EndpointStatus, Verdict};
use proptest::prelude::*;

/// Who comes with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The worker to whom it was granted.
    Holder,
    /// Another worker, with the right token.
    Another,
    /// The same worker, with a token that was never granted.
    Forger,
}

/// One thing to do. Numbers that choose something count through what is there, from the start again at its end.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Enqueue an event.
    Enqueue {
        /// To a host of its own (0 and 1), or to endpoints (2 and more).
        target: u8,
        /// Not before so many seconds from now.
        delay_secs: Option<u64>,
        /// Under one of a few keys.
        key: Option<u8>,
        /// Only if it is the first to tell of one of a few subjects, in a generation that it may name.
        once: Option<(u8, Option<u64>)>,
    },
    /// An operator begins the next generation of a subject.
    ResetOnce {
        /// Which.
        subject: u8,
    },
    /// Claim.
    Claim {
        /// Who.
        worker: u8,
        /// At most so many.
        limit: u32,
        /// At most so many per lane.
        lane_limit: u32,
        /// For so long.
        lease_secs: u64,
    },
    /// Renew a lease that was once granted.
    Renew {
        /// Which.
        flight: u16,
        /// By whom.
        by: By,
        /// For so long.
        lease_secs: u64,
    },
    /// Settle leases that were once granted, in one call.
    Settle {
        /// Which, and how.
        flights: Vec<(u16, Verdict, bool)>,
        /// By whom.
        by: By,
    },
    /// Give a lease back that was once granted.
    Release {
        /// Which.
        flight: u16,
        /// By whom.
        by: By,
    },
    /// Let time pass.
    Advance {
        /// So much.
        by: Duration,
    },
    /// Make ready what is due.
    Promote {
        /// At most so many.
        limit: u32,
    },
    /// Take back what has expired.
    Recover {
        /// At most so many.
        limit: u32,
        /// How often in a row is too often.
        max_abandoned: u32,
    },
    /// An operator retries a delivery.
    Retry {
        /// Which.
        delivery: u16,
    },
    /// An operator retries all in a status.
    RetryMatching {
        /// Which status.
        status: Option<DeliveryStatus>,
        /// At most so many.
        limit: u32,
    },
    /// An operator cancels a delivery.
    Cancel {
        /// Which.
        delivery: u16,
    },
    /// An operator pauses, resumes or disables an endpoint.
    SetEndpoint {
        /// Which.
        endpoint: u8,
        /// How.
        status: EndpointStatus,
    },
    /// Remove what is old.
    Retain {
        /// Older than so many seconds.
        older_than_secs: u64,
        /// At most so many events a step.
        limit: u32,
    },
}

/// Few different spans of time, so that some end at the same instant as others.
fn secs() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 1, 5, 10, 30, 60, 120])
}

/// Time passes to such an instant, to the microsecond before it, or to the one after.
fn step() -> impl Strategy<Value = Duration> {
    (secs(), prop_oneof![4 => Just(1), 1 => Just(0), 1 => Just(2)])
        .prop_map(|(secs, micros)| Duration::from_micros((secs * 1_000_000 + micros).saturating_sub(1)))
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        2 => Just(Verdict::Delivered),
        3 => secs().prop_map(|secs| Verdict::Retry { after: Duration::from_secs(secs) }),
        1 => Just(Verdict::Dead),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    // Now and then, so that the usual case stays usual.
    let rarely = || prop::bool::weighted(0.2);
    let by = || prop_oneof![8 => Just(By::Holder), 1 => Just(By::Another), 1 => Just(By::Forger)];
    let status = prop::sample::select(DeliveryStatus::ALL.to_vec());
    let endpoint_status = prop_oneof![2 => Just(EndpointStatus::Active), 1 => Just(EndpointStatus::Paused), 1 => Just(EndpointStatus::Disabled)];
    prop_oneof![
        8 => (
            0..6_u8,
            prop::option::weighted(0.3, secs()),
            prop::option::weighted(0.2, 0..4_u8),
            prop::option::weighted(0.3, (0..3_u8, prop::option::weighted(0.3, 1..4_u64))),
        )
            .prop_map(|(target, delay_secs, key, once)| Operation::Enqueue { target, delay_secs, key, once }),
        1 => (0..3_u8).prop_map(|subject| Operation::ResetOnce { subject }),
        8 => (0..2_u8, 0..7_u32, 1..5_u32, secs()).prop_map(|(worker, limit, lane_limit, lease_secs)| {
            Operation::Claim { worker, limit, lane_limit, lease_secs }
        }),
        3 => (any::<u16>(), by(), secs())
            .prop_map(|(flight, by, lease_secs)| Operation::Renew { flight, by, lease_secs }),
        8 => (prop::collection::vec((any::<u16>(), verdict(), rarely()), 1..5), by())
            .prop_map(|(flights, by)| Operation::Settle { flights, by }),
        2 => (any::<u16>(), by()).prop_map(|(flight, by)| Operation::Release { flight, by }),
        6 => step().prop_map(|by| Operation::Advance { by }),
        5 => (1..20_u32).prop_map(|limit| Operation::Promote { limit }),
        6 => (1..20_u32, 1..5_u32).prop_map(|(limit, max_abandoned)| Operation::Recover { limit, max_abandoned }),
        3 => any::<u16>().prop_map(|delivery| Operation::Retry { delivery }),
        1 => (prop::option::of(status), 0..5_u32)
            .prop_map(|(status, limit)| Operation::RetryMatching { status, limit }),
        2 => any::<u16>().prop_map(|delivery| Operation::Cancel { delivery }),
        2 => (0..3_u8, endpoint_status)
            .prop_map(|(endpoint, status)| Operation::SetEndpoint { endpoint, status }),
        1 => (secs(), 1..5_u32)
            .prop_map(|(older_than_secs, limit)| Operation::Retain { older_than_secs, limit }),
    ]
}

/// Lists of up to `most` operations, and at least half as many.
pub fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(), most / 2..=most)
}
