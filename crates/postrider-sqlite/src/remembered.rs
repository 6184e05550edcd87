//! What a settle needs of its delivery, as the claim has read it.
//!
//! A claim reads the delivery and its event anyway. Nothing of this changes while the lease lasts: attempts are counted by the
//! settle itself, whoever else would touch the delivery takes its lease first, and events never change. So whoever consumes a
//! lease that was granted here can do without reading both once more.
//!
//! It is a shortcut and no more: what is not in here (another process claimed it, or there was no room) is read.

use std::collections::HashMap;

use uuid::Uuid;

/// For how many leases at most. A dispatcher holds fewer, unless it is told to hold very many.
const MOST: usize = 4_096;

/// Metadata that is longer is read again instead.
const MOST_METADATA_BYTES: usize = 1_024;

/// Of a delivery, its event, and its lease's claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Before the attempt under this lease.
    pub(crate) attempt_count: u32,
    pub(crate) earlier_attempts: u32,
    pub(crate) endpoint_id: Option<Uuid>,
    pub(crate) tenant: String,
    pub(crate) event_id: Uuid,
    pub(crate) topic: String,
    pub(crate) metadata: String,
}

/// By the token of the lease, which is never granted twice.
#[derive(Debug, Default)]
pub(crate) struct Remembered(HashMap<Uuid, Facts>);

impl Remembered {
    /// Keeps the facts, if there is room. Leases that ended otherwise than by a settle here are forgotten in the end.
    pub(crate) fn keep(&mut self, token: Uuid, facts: Facts) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        if facts.metadata.len() <= MOST_METADATA_BYTES {
            self.0.insert(token, facts);
        }
    }

    pub(crate) fn take(&mut self, token: Uuid) -> Option<Facts> {
        self.0.remove(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(metadata: &str) -> Facts {
        Facts {
            attempt_count: 1,
            earlier_attempts: 0,
            endpoint_id: None,
            tenant: "default".to_owned(),
            event_id: Uuid::nil(),
            topic: "postrider".to_owned(),
            metadata: metadata.to_owned(),
        }
    }

    #[test]
    fn it_never_grows_beyond_its_bounds() {
        let mut remembered = Remembered::default();
        for _ in 0..3 * MOST {
            remembered.keep(Uuid::new_v4(), facts("{}"));
            assert!(remembered.0.len() <= MOST);
        }
        let (short, long) = (Uuid::new_v4(), Uuid::new_v4());
        remembered.keep(short, facts("{}"));
        remembered.keep(long, facts(&" ".repeat(MOST_METADATA_BYTES + 1)));
        assert_eq!((remembered.take(short), remembered.take(short)), (Some(facts("{}")), None));
        assert_eq!(remembered.take(long), None);
    }
}
