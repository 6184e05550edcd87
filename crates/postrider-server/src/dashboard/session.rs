//! Who is signed in.
//!
//! A session is a sealed text in the browser: the API key that was shown, when it ends, and what its forms must bring along.
//! Nothing is kept on the server, so it outlives a restart and holds at every server with the same keys. The key is looked up
//! again for every request: when it is revoked, so are its sessions.

use std::fmt;

use jiff::Timestamp;
use postrider::{KeyToken, Keyring};
use serde::{Deserialize, Serialize};

use super::random_token;

/// To whom the sealed text belongs. No tenant has such a name, so that nothing that was sealed for one opens as a session.
const OWNER: &str = "\u{0}dashboard session";

/// After this long somebody has to sign in again.
const LASTS_SECONDS: i64 = 12 * 3_600;

/// Somebody who has signed in.
pub(super) struct Session {
    /// The key that was shown.
    pub(super) token: KeyToken,
    /// What every form of it brings along.
    pub(super) csrf: String,
    ends_at: i64,
}

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    key: &'a str,
    csrf: &'a str,
    ends_at: i64,
}

impl Session {
    pub(super) fn begin(token: KeyToken, now: Timestamp) -> Self {
        Self { token, csrf: random_token(), ends_at: now.as_second() + LASTS_SECONDS }
    }

    pub(super) fn seal(&self, keys: &Keyring) -> String {
        let sealed = Sealed { key: self.token.reveal(), csrf: &self.csrf, ends_at: self.ends_at };
        let text = serde_json::to_vec(&sealed).expect("a session is plain data");
        keys.seal_bytes(&text, OWNER).expect("the dashboard has a key to seal with")
    }

    /// The session in a cookie; none when it is over, or was not sealed here.
    pub(super) fn open(keys: &Keyring, cookie: &str, now: Timestamp) -> Option<Self> {
        let text = keys.open_bytes(cookie, OWNER).ok()?;
        let sealed: Sealed<'_> = serde_json::from_slice(&text).ok()?;
        let token = KeyToken::parse(sealed.key)?;
        let session = Self { token, csrf: sealed.csrf.to_owned(), ends_at: sealed.ends_at };
        (now.as_second() < session.ends_at).then_some(session)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ends_at", &self.ends_at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use postrider::{Secret, SecretKey};

    use super::*;

    #[test]
    fn a_session_opens_until_it_ends_and_under_its_keys_only() {
        let (old, new) = (SecretKey::generate(), SecretKey::generate());
        let keys = Keyring::new([old.clone()]);
        let now = Timestamp::now();
        let session = Session::begin(KeyToken::generate(), now);
        let sealed = session.seal(&keys);
        assert!(!sealed.contains(session.token.reveal()));
        let opened = Session::open(&keys, &sealed, now).unwrap();
        assert_eq!((opened.token, &opened.csrf), (session.token, &session.csrf));
        assert!(Session::open(&Keyring::new([new.clone(), old]), &sealed, now).is_some(), "while keys are rotated");
        assert!(Session::open(&Keyring::new([new]), &sealed, now).is_none());
        let later = now + SignedDuration::from_secs(LASTS_SECONDS);
        assert!(Session::open(&keys, &sealed, later).is_none());
        for text in ["", "sealed:v1:", &sealed[..sealed.len() - 2]] {
            assert!(Session::open(&keys, text, now).is_none(), "{text}");
        }
    }

    #[test]
    fn what_was_sealed_for_something_else_is_no_session() {
        let keys = Keyring::new([SecretKey::generate()]);
        let secret = keys.seal(&Secret::generate(), "acme").unwrap();
        assert!(Session::open(&keys, &secret, Timestamp::now()).is_none());
    }
}
