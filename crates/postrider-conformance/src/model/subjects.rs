//! Once-only claims, said once more without a store.

use std::collections::BTreeMap;

use postrider::{Enqueued, EventId, NewEvent};

/// Every subject that was claimed or reset.
#[derive(Debug, Default)]
pub struct Subjects(BTreeMap<String, Standing>);

/// How a subject stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its generation.
    pub generation: u64,
    /// Who has claimed it in this generation.
    pub winner: Option<EventId>,
}

impl Standing {
    const FRESH: Self = Self { generation: 1, winner: None };
}

impl Subjects {
    /// How a subject stands, if anybody has ever touched it.
    pub fn standing(&self, subject: &str) -> Option<Standing> {
        self.0.get(subject).copied()
    }

    /// What the event is told that loses its claim; none if it claims nothing, or wins.
    pub fn refusal(&self, event: &NewEvent) -> Option<Enqueued> {
        let once = event.once.as_ref()?;
        let Standing { generation, winner } = self.standing(&once.subject).unwrap_or(Standing::FRESH);
        let current = once.generation.is_none_or(|named| named == generation);
        (!current || winner.is_some()).then_some(Enqueued::NotClaimed { generation, winner })
    }

    /// The event was written, and with it its claim, if it makes one.
    pub fn enqueued(&mut self, event: &NewEvent, id: EventId) {
        if let Some(once) = &event.once {
            self.0.entry(once.subject.clone()).or_insert(Standing::FRESH).winner = Some(id);
        }
    }

    /// The next generation begins.
    pub fn reset(&mut self, subject: &str) -> u64 {
        let standing = self.0.entry(subject.to_owned()).or_insert(Standing::FRESH);
        *standing = Standing { generation: standing.generation + 1, winner: None };
        standing.generation
    }
}
