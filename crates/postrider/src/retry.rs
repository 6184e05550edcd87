//! When to try again: a schedule of delays and a number of attempts. Pure data and one function.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::DeliveryId;

/// The delays between attempts, and how many attempts there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    delays_ms: Vec<u64>,
    max_attempts: NonZeroU32,
}

impl RetryPolicy {
    /// How long to wait after the `attempt`-th failure (1-based), or none when that was the last.
    pub fn delay_after(&self, attempt: u32, _delivery: DeliveryId) -> Option<Duration> {
        (attempt < self.max_attempts.get()).then(|| Duration::from_millis(self.delays_ms[attempt as usize - 1]))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            delays_ms: vec![30_000, 120_000, 600_000, 3_600_000, 21_600_000],
            max_attempts: NonZeroU32::new(5).unwrap(),
        }
    }
}
