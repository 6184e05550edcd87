//! Deliveries that may be what crashes their dispatchers.
//!
//! A crash abandons all that the process held: the delivery that caused it, and its neighbours. Claimed together again, they
//! would be abandoned together again, and in the end the innocent would be given up with the guilty. So a delivery that was
//! abandoned half as often as it may be is a suspect. Of those that a claim brings, one is kept and sent while nothing else is
//! under way; the others are given back uncharged, and have their turn later. An innocent one is settled, which clears it. The
//! guilty one crashes its dispatcher alone, until it is given up.
//!
//! That is slow, and only happens to a dispatcher that has crashed several times in a row.

use std::time::Duration;

use super::{Shared, care, release};
use crate::lease::Lease;
use crate::store::Claim;

/// How long nothing else is started beside a suspect. What crashes a process mostly does so at once, and a receiver that is
/// merely slow must not hold up the others.
pub(super) const HEAD_START: Duration = Duration::from_secs(1);

/// Takes the suspects out of what was claimed, keeps the first of them, and gives the others back.
pub(super) async fn set_apart(shared: &Shared, claims: &mut Vec<Claim>) -> Option<Claim> {
    let max_abandoned = shared.settings.max_abandoned;
    let is_suspect = |claim: &mut Claim| is_suspect(claim.abandoned_count, max_abandoned) && !care::is_troubled(claim);
    let mut suspects = claims.extract_if(.., is_suspect);
    let kept = suspects.next()?;
    let others: Vec<Lease> = suspects.map(|claim| claim.lease).collect();
    shared.count(|totals| totals.claimed += others.len() as u64);
    release(shared, &others).await;
    Some(kept)
}

fn is_suspect(abandoned_count: u32, max_abandoned: u32) -> bool {
    abandoned_count >= (max_abandoned / 2).max(1)
}

/// Tells which delivery is about to be sent alone: if the process ends now, this was the last that it said.
pub(super) fn tell(shared: &Shared, suspect: &Claim) {
    tracing::warn!(
        delivery_id = %suspect.lease.delivery_id,
        worker_id = %shared.settings.worker,
        code = "delivery_suspected",
        "{} claims of this delivery in a row ended without a result: it is sent alone",
        suspect.abandoned_count
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_was_abandoned_half_as_often_as_it_may_be() {
        let first = |max_abandoned| (0..=max_abandoned).find(|count| is_suspect(*count, max_abandoned)).unwrap();
        assert_eq!([1, 2, 3, 6, 10, 1_000].map(first), [1, 1, 1, 3, 5, 500]);
    }
}
