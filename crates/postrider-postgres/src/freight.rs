//! How many deliveries a claim brings at once, where their payloads are large.
//!
//! Two hundred payloads of a quarter of a megabyte would come as one answer of 64 MB: all of it is written to memory that is new
//! to the process, and has left the processor's caches when it is signed and sent. A few megabytes at a time are
//! used again. How large payloads are is known of the claims before.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes of payloads a claim should bring at most.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// A claim has a cost of its own, so fewer are not asked for.
const FEWEST: usize = 16;

/// What payloads weigh lately.
#[derive(Debug, Default)]
pub(crate) struct Freight {
    mean_bytes: AtomicUsize,
}

impl Freight {
    /// How many deliveries a claim should bring at most.
    pub(crate) fn most(&self) -> u32 {
        let most = (MOST_BYTES / self.mean_bytes.load(Ordering::Relaxed).max(1)).max(FEWEST);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Takes note of the payloads that a claim brought.
    pub(crate) fn learn(&self, payloads: impl ExactSizeIterator<Item = usize>) {
        let count = payloads.len();
        if count == 0 {
            return;
        }
        let mean = payloads.sum::<usize>() / count;
        // A claim of few says little, and one of many most of it.
        let before = self.mean_bytes.load(Ordering::Relaxed);
        let weight = count.min(FEWEST);
        self.mean_bytes.store((before * (2 * FEWEST - weight) + mean * weight) / (2 * FEWEST), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_payloads_are_not_counted_one_by_one() {
        let freight = Freight::default();
        freight.learn([1_000; 256].into_iter());
        assert!(freight.most() > 4_000);
        freight.learn([].into_iter());
        assert!(freight.most() > 4_000);
    }

    #[test]
    fn a_few_megabytes_of_large_ones_are_claimed_at_once() {
        let freight = Freight::default();
        for _ in 0..8 {
            freight.learn([65_536; 64].into_iter());
        }
        assert!((64..=65).contains(&freight.most()), "{}", freight.most());
        for _ in 0..8 {
            freight.learn([262_144; 64].into_iter());
        }
        assert_eq!(freight.most(), 16);
        freight.learn([1_000_000; 64].into_iter());
        assert_eq!(freight.most(), 16, "a claim has a cost of its own");
    }

    #[test]
    fn a_single_large_one_changes_little() {
        let freight = Freight::default();
        freight.learn([1_000; 64].into_iter());
        freight.learn([262_144].into_iter());
        assert!(freight.most() > 256);
    }
}
