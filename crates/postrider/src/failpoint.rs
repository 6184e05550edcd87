//! Named places at which a test can end the process, as a crash would: at once, with nothing tidied up.
//!
//! Only in builds with the feature `failpoints`, which no release has; without it neither this module nor a call of it
//! exists. The variable [`VARIABLE`] says where to end, as a list separated by commas:
//!
//! - `before_settle=abort@17`: the 17th time that this place is reached;
//! - `after_send=abort~200#42`: each time with a chance of 1 in 200, drawn from the seed 42;
//! - `marked_payload=abort`: each time, which for this place is an attempt whose payload contains [`MARK`].
//!
//! A place that does not exist, or a text that cannot be read, ends the process as well: a test that hopes for a crash must
//! not pass because of a misspelling.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable that arms places.
pub const VARIABLE: &str = "POSTRIDER_FAILPOINTS";

/// A payload that contains this ends the process at [`MARKED_PAYLOAD`].
pub const MARK: &[u8] = b"postrider-ends-here";

/// The store has granted leases, and nobody here has heard of them.
pub const AFTER_CLAIM: &str = "after_claim";
/// An attempt with a payload that contains [`MARK`] is about to be made.
pub const MARKED_PAYLOAD: &str = "marked_payload";
/// The receiver has answered, and nobody here has heard of it.
pub const AFTER_SEND: &str = "after_send";
/// Results are about to be handed to the store.
pub const BEFORE_SETTLE: &str = "before_settle";
/// The store has been asked to settle, and has not answered. A few milliseconds around that, by the count.
pub const INSIDE_SETTLE: &str = "inside_settle";
/// The store has settled, and nobody here has heard of it.
pub const AFTER_SETTLE: &str = "after_settle";
/// SQLite: a lease is consumed and its result not yet written, in the midst of the writer's transaction.
pub const MID_TRANSACTION: &str = "mid_transaction";
/// SQLite: everything is written and nothing committed.
pub const BEFORE_COMMIT: &str = "before_commit";
/// SQLite: it is committed, and nobody was told.
pub const AFTER_COMMIT: &str = "after_commit";

/// All places.
pub const PLACES: [&str; 9] = [
    AFTER_CLAIM,
    MARKED_PAYLOAD,
    AFTER_SEND,
    BEFORE_SETTLE,
    INSIDE_SETTLE,
    AFTER_SETTLE,
    MID_TRANSACTION,
    BEFORE_COMMIT,
    AFTER_COMMIT,
];

/// Ends the process if this place is armed and its time has come.
pub fn reached(place: &'static str) {
    if let Some(armed) = armed().iter().find(|armed| armed.place == place)
        && armed.strikes().is_some()
    {
        end(place);
    }
}

/// Ends the process if its payload says so.
pub fn reached_with(payload: &[u8]) {
    if payload.windows(MARK.len()).any(|bytes| bytes == MARK) {
        reached(MARKED_PAYLOAD);
    }
}

/// Does something that takes a while, and ends the process in its midst, up to 4 milliseconds into it, if this place is
/// armed and its time has come.
pub async fn amid<T>(place: &'static str, work: impl Future<Output = T>) -> T {
    let Some(count) = armed().iter().find(|armed| armed.place == place).and_then(Armed::strikes) else {
        return work.await;
    };
    tokio::select! {
        biased;
        _ = work => end(place),
        () = tokio::time::sleep(Duration::from_micros(mixed(count) % 4_000)) => end(place),
    }
}

fn end(place: &str) -> ! {
    tracing::error!(place, "failpoint reached: the process ends here");
    std::process::abort()
}

/// When to end the process.
#[derive(Debug, PartialEq, Eq)]
enum When {
    Always,
    Nth(u64),
    Chance { one_in: u64, seed: u64 },
}

#[derive(Debug)]
struct Armed {
    place: &'static str,
    when: When,
    reached: AtomicU64,
}

impl Armed {
    /// Counts, and returns the count if the time has come.
    fn strikes(&self) -> Option<u64> {
        let count = self.reached.fetch_add(1, Ordering::Relaxed) + 1;
        let strikes = match self.when {
            When::Always => true,
            When::Nth(nth) => count == nth,
            When::Chance { one_in, seed } => mixed(seed.wrapping_add(count)).is_multiple_of(one_in),
        };
        strikes.then_some(count)
    }
}

fn armed() -> &'static [Armed] {
    static ARMED: OnceLock<Vec<Armed>> = OnceLock::new();
    ARMED.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).unwrap_or_else(|reason| {
            tracing::error!("{VARIABLE} cannot be read: {reason}");
            std::process::abort()
        })
    })
}

fn parse(text: &str) -> Result<Vec<Armed>, String> {
    text.split(',').filter(|part| !part.is_empty()).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<Armed, String> {
    let (name, action) = text.split_once('=').ok_or_else(|| format!("{text:?} has no `=`"))?;
    let place = PLACES.into_iter().find(|place| *place == name).ok_or_else(|| format!("there is no place {name:?}"))?;
    let when = action.strip_prefix("abort").and_then(parse_when);
    let when = when.ok_or_else(|| format!("{action:?} is not abort, abort@N or abort~N#SEED"))?;
    Ok(Armed { place, when, reached: AtomicU64::new(0) })
}

fn parse_when(text: &str) -> Option<When> {
    if text.is_empty() {
        return Some(When::Always);
    }
    if let Some(nth) = text.strip_prefix('@') {
        return nth.parse().ok().filter(|nth| *nth > 0).map(When::Nth);
    }
    let (one_in, seed) = text.strip_prefix('~')?.split_once('#')?;
    let (one_in, seed) = (one_in.parse().ok()?, seed.parse().ok()?);
    (one_in > 0).then_some(When::Chance { one_in, seed })
}

/// Spreads a number over all bits, always in the same way.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    bits ^ (bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_arms_its_places() {
        let armed = parse("before_settle=abort@17,after_send=abort~200#42,marked_payload=abort").unwrap();
        let read: Vec<_> = armed.iter().map(|armed| (armed.place, &armed.when)).collect();
        let chance = When::Chance { one_in: 200, seed: 42 };
        let expected = [(BEFORE_SETTLE, &When::Nth(17)), (AFTER_SEND, &chance), (MARKED_PAYLOAD, &When::Always)];
        assert_eq!(read, expected);
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in ["before_settel=abort", "before_settle", "before_settle=panic", "after_send=abort@0"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for text in ["after_send=abort~0#1", "after_send=abort~5", "after_send=abort@x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_nth_time_is_one_time() {
        let third = &parse("after_claim=abort@3").unwrap()[0];
        let strikes: Vec<_> = (0..5).map(|_| third.strikes()).collect();
        assert_eq!(strikes, [None, None, Some(3), None, None]);
    }

    #[test]
    fn a_chance_is_the_same_for_the_same_seed_and_about_as_large_as_it_says() {
        let draw = |seed: u64| {
            let armed = parse(&format!("after_claim=abort~50#{seed}")).unwrap();
            (0..50_000).filter_map(|_| armed[0].strikes()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!((800..1_200).contains(&draw(7).len()), "{}", draw(7).len());
    }
}
