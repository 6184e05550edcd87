//! What an action has to say, on the page that follows it.
//!
//! It travels in a sealed cookie that the next page shows and removes: after an action a browser is sent on, so that reloading
//! the page repeats nothing, and a secret that is shown once is in no address.

use postrider::Keyring;
use serde::{Deserialize, Serialize};

/// To whom the sealed text belongs.
const OWNER: &str = "\u{0}dashboard flash";

/// What is to be said.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flash {
    /// In one sentence.
    pub(super) text: String,
    /// Shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Shown>,
    /// It went wrong.
    #[serde(default)]
    pub(super) bad: bool,
}

/// A secret, and what it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) what: String,
    pub(super) secret: String,
}

impl Flash {
    pub(super) fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), secret: None, bad: false }
    }

    pub(super) fn trouble(text: impl Into<String>) -> Self {
        Self { bad: true, ..Self::done(text) }
    }

    pub(super) fn with_secret(self, what: &str, secret: &str) -> Self {
        Self { secret: Some(Shown { what: what.to_owned(), secret: secret.to_owned() }), ..self }
    }

    pub(super) fn seal(&self, keys: &Keyring) -> String {
        let text = serde_json::to_vec(self).expect("a notice is plain data");
        keys.seal_bytes(&text, OWNER).expect("the dashboard has a key to seal with")
    }

    pub(super) fn open(keys: &Keyring, cookie: &str) -> Option<Self> {
        serde_json::from_slice(&keys.open_bytes(cookie, OWNER).ok()?).ok()
    }
}
