//! The status of a payment request, and what it may become.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Where a payment request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Nothing was paid yet.
    Pending,
    /// The amount is there, in blocks that may still be replaced.
    Detected,
    /// The amount is there, deep enough.
    Confirmed,
    /// It was not confirmed in time.
    Expired,
}

impl Status {
    const ALL: [Self; 4] = [Self::Pending, Self::Detected, Self::Confirmed, Self::Expired];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Detected => "detected",
            Self::Confirmed => "confirmed",
            Self::Expired => "expired",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether it may become `next`. A status is entered at most once, and the last two are final.
    pub(crate) fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Pending, Self::Detected | Self::Confirmed | Self::Expired)
                | (Self::Detected, Self::Confirmed | Self::Expired)
        )
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the chain says of a request's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    /// The amount is there in the latest block.
    pub(crate) is_detected: bool,
    /// The amount was there already as many blocks ago as must confirm it.
    pub(crate) is_confirmed: bool,
}

/// What a request becomes by what was observed, if anything. What was paid in time counts, even if nobody looked until its
/// time was over; what is merely detected by then has expired.
pub(crate) fn next_status(current: Status, observed: Observation, is_past: bool) -> Option<Status> {
    let target = match observed {
        Observation { is_confirmed: true, .. } => Status::Confirmed,
        _ if is_past => Status::Expired,
        Observation { is_detected: true, .. } => Status::Detected,
        _ => return None,
    };
    current.may_become(target).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::Status::{Confirmed, Detected, Expired, Pending};
    use super::*;

    #[test]
    fn doc_002_the_allowed_transitions_are_these_and_no_others() {
        let mut allowed = Vec::new();
        for from in Status::ALL {
            allowed.extend(Status::ALL.into_iter().filter(|to| from.may_become(*to)).map(|to| (from, to)));
        }
        let expected =
            [(Pending, Detected), (Pending, Confirmed), (Pending, Expired), (Detected, Confirmed), (Detected, Expired)];
        assert_eq!(allowed, expected);
    }

    #[test]
    fn the_chain_and_the_clock_decide() {
        let nothing = Observation { is_detected: false, is_confirmed: false };
        let detected = Observation { is_detected: true, is_confirmed: false };
        let confirmed = Observation { is_detected: true, is_confirmed: true };
        // The money was moved on after it had been confirmed.
        let moved_on = Observation { is_detected: false, is_confirmed: true };
        for (current, observed, is_past, expected) in [
            (Pending, nothing, false, None),
            (Pending, nothing, true, Some(Expired)),
            (Pending, detected, false, Some(Detected)),
            (Pending, detected, true, Some(Expired)),
            (Pending, confirmed, false, Some(Confirmed)),
            (Pending, confirmed, true, Some(Confirmed)),
            (Pending, moved_on, false, Some(Confirmed)),
            (Detected, nothing, false, None),
            (Detected, detected, false, None),
            (Detected, detected, true, Some(Expired)),
            (Detected, confirmed, true, Some(Confirmed)),
            (Confirmed, confirmed, true, None),
            (Expired, confirmed, true, None),
        ] {
            let next = next_status(current, observed, is_past);
            assert_eq!(next, expected, "{current} {observed:?} past: {is_past}");
        }
    }

    #[test]
    fn a_status_survives_its_text() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("paid"), None);
    }
}
