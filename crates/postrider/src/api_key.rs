//! The keys with which programs and people are let in.
//!
//! A key is random, and so long that a plain digest of it is enough to recognise it by. Stores keep the digest, so what
//! is in a database, or in a copy of it, opens nothing.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::ids::KeyId;
use crate::refusal::Refusal;

/// What a key's text begins with.
const PREFIX: &str = "prk_";

/// A key's text, which never prints itself.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyToken(String);

/// By which a store recognises a key.
pub type KeyDigest = [u8; 32];

impl KeyToken {
    /// A new random key of 32 bytes, from the operating system's generator.
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system has random bytes");
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// What somebody showed; none when it cannot be a key.
    pub fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(PREFIX)?;
        let bytes = URL_SAFE_NO_PAD.decode(body).ok()?;
        (bytes.len() == 32).then(|| Self(text.to_owned()))
    }

    /// What a store keeps of it.
    pub fn digest(&self) -> KeyDigest {
        sha2::Sha256::digest(self.0.as_bytes()).into()
    }

    /// The text, for showing it once to the person who asked for it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyToken(masked)")
    }
}

/// What a key permits; each scope includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look.
    Read,
    /// Send events, and act on endpoints, deliveries and once-only claims.
    Write,
    /// Manage keys, and read the audit trail.
    Admin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Its name, in SQL, JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().take(32).collect();
            Refusal::new("scope_invalid", "scope", format!("`{}` is not a scope", shown.escape_default()))
                .hint("use read, write or admin")
        })
    }
}

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// For people: whose it is, what it is for.
    pub name: String,
    /// The one tenant it is for, or all.
    pub tenant: Option<String>,
    /// What it permits.
    pub scope: Scope,
    /// By which it is recognised.
    pub digest: KeyDigest,
    /// Only if there is no key at all yet, revoked ones included; of several that try at once, one succeeds.
    pub only_first: bool,
}

/// A key as it is stored: without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// For people.
    pub name: String,
    /// The one tenant it is for, or all.
    pub tenant: Option<String>,
    /// What it permits.
    pub scope: Scope,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it opens nothing.
    pub revoked_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_recognised_by_its_digest_and_never_prints_itself() {
        let key = KeyToken::generate();
        assert_eq!(KeyToken::parse(key.reveal()).unwrap().digest(), key.digest());
        assert_ne!(KeyToken::generate().digest(), key.digest());
        assert!(!format!("{key:?}").contains(key.reveal()));
    }

    #[test]
    fn what_cannot_be_a_key_is_none() {
        for text in ["", "prk_", "prk_abc", "Bearer prk_", &"prk_x".repeat(20_000), &format!("prk_{}", "!".repeat(43))]
        {
            assert_eq!(KeyToken::parse(text), None);
        }
    }

    #[test]
    fn scopes_include_those_before_them() {
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
        assert_eq!("write".parse(), Ok(Scope::Write));
        assert_eq!("root".parse::<Scope>().unwrap_err().code, "scope_invalid");
    }
}
