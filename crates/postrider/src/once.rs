//! Once-only claims: of all who would tell of a subject, one does.
//!
//! A subject (`plan/123`) has a generation, which begins at 1. An enqueue that names the subject claims it together with
//! its event, in one transaction: the first wins, everyone after gets nothing, whatever the type of their event. A reset
//! begins the next generation, in which there is again one winner. A straggler that names the generation it knew gets
//! nothing once that is over.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::EventId;
use crate::refusal::Refusal;

/// What an enqueue claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// What there is to tell of.
    pub subject: String,
    /// Only in this generation; none means the one that is current.
    pub generation: Option<u64>,
}

/// How a subject stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnceClaim {
    /// Whose it is.
    pub tenant: String,
    /// The subject.
    pub subject: String,
    /// The current generation.
    pub generation: u64,
    /// Who has claimed it in this generation, if anybody has.
    pub winner: Option<OnceWinner>,
}

/// The event that claimed a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OnceWinner {
    /// Which one.
    pub event_id: EventId,
    /// Its type.
    pub event_type: String,
    /// When.
    pub claimed_at: Timestamp,
}

/// Which subjects to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnceFilter {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// Those that begin with this, to the letter.
    pub prefix: Option<String>,
}

/// Some subjects, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OncePage {
    /// How they stand.
    pub items: Vec<OnceClaim>,
    /// Where the next page begins, or none at the end.
    pub next: Option<OnceCursor>,
}

/// Where a list of subjects goes on: after this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceCursor {
    /// Whose it is.
    pub tenant: String,
    /// The subject.
    pub subject: String,
}

/// Neither a tenant nor a subject has such a character.
const BETWEEN: char = '\0';

impl fmt::Display for OnceCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(format!("{}{BETWEEN}{}", self.tenant, self.subject)))
    }
}

impl FromStr for OnceCursor {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
            let (tenant, subject) = text.split_once(BETWEEN)?;
            (!subject.contains(BETWEEN)).then(|| Self { tenant: tenant.to_owned(), subject: subject.to_owned() })
        };
        parse().ok_or_else(|| Refusal::new("cursor_invalid", "cursor", "the cursor is not one that a listing returned"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_a_text_that_goes_into_an_address() {
        let cursor = OnceCursor { tenant: "acme".to_owned(), subject: "plan/1 ~?".to_owned() };
        let text = cursor.to_string();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        assert_eq!(text.parse(), Ok(cursor));
        for text in ["", "!", "YQ", "YQBiAGM", "0198f2c0c0c07000a000000000000001"] {
            assert_eq!(text.parse::<OnceCursor>().unwrap_err().code, "cursor_invalid", "{text}");
        }
    }
}
