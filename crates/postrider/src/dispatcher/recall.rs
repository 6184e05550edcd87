//! Gives back what has been in line for too long.
//!
//! What is claimed ahead is as much as should begin within a few hundredths of a second. If receivers slow down just then, it
//! would wait here while other dispatchers might have slots for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crew::InLine;
use super::flight::{self, Flight};
use super::{Shared, release};
use crate::lease::Lease;

/// How long something is in line at most.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How often the lines are looked at while something is in them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn run(shared: Arc<Shared>, in_line: InLine<Flight>) {
    loop {
        in_line.something().await;
        tokio::time::sleep(LOOK_EVERY).await;
        in_line.look(Instant::now());
        let Some(before) = Instant::now().checked_sub(LONGEST_WAIT) else { continue };
        let leases = recalled(&in_line, before);
        if !leases.is_empty() {
            flight::give_back(&shared, &leases).await;
        }
    }
}

/// Gives back everything that has not begun. A store that does not take it gets a moment; then it expires.
pub(super) async fn all(shared: &Shared, in_line: &InLine<Flight>) {
    let leases = recalled(in_line, Instant::now());
    release(shared, &leases).await;
    shared.held.remove(leases.iter().map(|lease| lease.token));
}

fn recalled(in_line: &InLine<Flight>, before: Instant) -> Vec<Lease> {
    in_line.recall(before).iter().map(Flight::lease).collect()
}
