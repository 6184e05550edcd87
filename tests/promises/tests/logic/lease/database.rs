//! What the store does: one function per statement, each atomic, as the statement is.

use super::{Claim, Guard, Owner, Protocol, Verdict};

/// Everything that is committed. A failover replaces it by an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    pub(crate) deliveries: Vec<Delivery>,
    /// The number of the last lease, where they are counted. It is in the database, and goes back with it.
    pub(crate) last_number: u8,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Delivery {
    pub(crate) place: Place,
    pub(crate) attempt_count: u8,
    pub(crate) abandoned_count: u8,
    /// The rows in `attempts`: which lease each of them consumed.
    pub(crate) attempts: Vec<Key>,
}

/// Where a delivery is, and with it how it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    #[default]
    Ready,
    Scheduled,
    Leased(Lease),
    Settled(End),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Delivered,
    /// The last allowed attempt failed.
    Exhausted,
    /// Too many leases in a row ran out.
    Abandoned,
    Cancelled,
}

/// A row in `leases`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) key: Key,
    /// How often it was renewed.
    pub(crate) term: u8,
    /// `lease_until` has passed.
    pub(crate) expired: bool,
}

/// What a lease may be recognised by. Each guard looks at some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) owner: Owner,
    /// Counted up by the database, where the guard looks at it.
    pub(crate) number: u8,
    /// Which claim it was. A random token is equal if and only if this is.
    pub(crate) claim: Claim,
}

/// What a settle answers, as in the engine, and whose lease it consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settlement {
    Applied(Key),
    /// An attempt of this lease is on record. The answer names the attempt.
    AppliedEarlier(Key),
    LeaseLost,
}

impl Guard {
    /// Whether somebody who holds `mine` passes for the holder of `theirs`.
    pub(crate) fn takes(self, mine: Key, theirs: Key) -> bool {
        match self {
            Self::Token => mine.owner == theirs.owner && mine.claim == theirs.claim,
            Self::Owner => mine.owner == theirs.owner,
            Self::OwnerAndNumber => mine.owner == theirs.owner && mine.number == theirs.number,
        }
    }
}

impl Delivery {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        if let Place::Leased(lease) = &self.place { Some(lease) } else { None }
    }

    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.place, Place::Settled(_))
    }
}

impl Database {
    pub(crate) fn new(deliveries: usize) -> Self {
        Self { deliveries: vec![Delivery::default(); deliveries], last_number: 0 }
    }

    /// `claim.sql`: takes the row out of `ready`, and writes one into `leases` with a fresh token.
    pub(crate) fn claim(&mut self, protocol: Protocol, delivery: usize, owner: Owner, claim: Claim) -> Option<Key> {
        let row = &mut self.deliveries[delivery];
        if row.place != Place::Ready {
            return None;
        }
        self.last_number += u8::from(protocol.guard == Guard::OwnerAndNumber);
        let key = Key { owner, number: self.last_number, claim };
        row.place = Place::Leased(Lease { key, term: 0, expired: false });
        Some(key)
    }

    /// `renew.sql`: extends the lease that passes the guard, and returns it.
    pub(crate) fn renew(&mut self, protocol: Protocol, delivery: usize, mine: Key) -> Option<Lease> {
        let lease = self.guarded(protocol.guard, delivery, mine)?;
        let renewed = Lease { term: lease.term + 1, expired: false, ..lease };
        self.deliveries[delivery].place = Place::Leased(renewed);
        Some(renewed)
    }

    /// `settle.sql`, and `settle_earlier.sql` where that found nothing: deletes the lease that passes the guard, and for
    /// what it deleted writes the attempt and moves the delivery.
    pub(crate) fn settle(&mut self, protocol: Protocol, delivery: usize, mine: Key, verdict: Verdict) -> Settlement {
        let Some(lease) = self.guarded(protocol.guard, delivery, mine) else {
            let on_record = |attempt: &&Key| protocol.guard.takes(mine, **attempt);
            let earlier = self.deliveries[delivery].attempts.iter().find(on_record);
            return earlier.map_or(Settlement::LeaseLost, |attempt| Settlement::AppliedEarlier(*attempt));
        };
        let row = &mut self.deliveries[delivery];
        row.attempt_count += 1;
        row.abandoned_count = 0;
        row.attempts.push(mine);
        if protocol.settling_consumes {
            row.place = match verdict {
                Verdict::Delivered => Place::Settled(End::Delivered),
                Verdict::Retry => Place::Scheduled,
                Verdict::Dead => Place::Settled(End::Exhausted),
            };
        }
        Settlement::Applied(lease.key)
    }

    /// `release.sql`: deletes the lease that passes the guard, and makes the delivery ready. Returns whose it was.
    pub(crate) fn release(&mut self, protocol: Protocol, delivery: usize, mine: Key) -> Option<Key> {
        let lease = self.guarded(protocol.guard, delivery, mine)?;
        self.deliveries[delivery].place = Place::Ready;
        Some(lease.key)
    }

    /// `recover.sql`: takes an expired lease back. What was abandoned too often in a row is dead.
    pub(crate) fn recover(&mut self, protocol: Protocol, delivery: usize) -> Option<()> {
        let row = &mut self.deliveries[delivery];
        row.lease().filter(|lease| lease.expired)?;
        row.abandoned_count += 1;
        let is_dead = row.abandoned_count >= protocol.max_abandoned;
        row.place = if is_dead { Place::Settled(End::Abandoned) } else { Place::Ready };
        Some(())
    }

    /// `promote.sql`: what is due is ready.
    pub(crate) fn promote(&mut self, delivery: usize) -> Option<()> {
        let row = &mut self.deliveries[delivery];
        (row.place == Place::Scheduled).then(|| row.place = Place::Ready)
    }

    /// `cancel.sql`: takes the delivery out of its place, also out of `leases`.
    pub(crate) fn cancel(&mut self, delivery: usize) -> Option<()> {
        let row = &mut self.deliveries[delivery];
        (!row.is_settled()).then(|| row.place = Place::Settled(End::Cancelled))
    }

    /// The database's clock passes `lease_until`. Returns the lease.
    pub(crate) fn expire(&mut self, delivery: usize) -> Option<Lease> {
        let Place::Leased(lease) = &mut self.deliveries[delivery].place else { return None };
        (!lease.expired).then(|| {
            lease.expired = true;
            *lease
        })
    }

    /// Everything by which a claim is known here.
    pub(crate) fn keys_mut(&mut self) -> impl Iterator<Item = &mut Key> {
        self.deliveries.iter_mut().flat_map(|row| {
            let lease = if let Place::Leased(lease) = &mut row.place { Some(&mut lease.key) } else { None };
            lease.into_iter().chain(&mut row.attempts)
        })
    }

    fn guarded(&self, guard: Guard, delivery: usize, mine: Key) -> Option<Lease> {
        self.deliveries[delivery].lease().copied().filter(|lease| guard.takes(mine, lease.key))
    }
}
