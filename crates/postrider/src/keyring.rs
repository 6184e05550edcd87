//! The keys that encrypt secrets at rest.
//!
//! A secret is sealed with AES-256-GCM under a random nonce, bound to whose it is, so that a sealed text that is
//! copied into another tenant's row does not open. The text names its key by a short digest: a keyring holds the key that
//! seals and any number of older ones that still open, which is how a key is rotated.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::{Digest as _, Sha256};

use crate::secret::Secret;

/// What a sealed text begins with.
const PREFIX: &str = "sealed:v1:";

/// One key, which never prints itself.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

/// A text that is no key. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret key is 32 bytes in base64, such as `openssl rand -base64 32` prints")]
pub struct InvalidSecretKey;

impl SecretKey {
    /// The key that a text means: 32 bytes in base64.
    pub fn parse(text: &str) -> Result<Self, InvalidSecretKey> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| InvalidSecretKey)?;
        Ok(Self(bytes.try_into().map_err(|_| InvalidSecretKey)?))
    }

    /// A new random key, from the operating system's generator.
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the operating system has random bytes");
        Self(bytes)
    }

    /// Its text, for the file that keeps it.
    pub fn reveal(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// What sealed texts call it: says nothing about the key.
    fn name(&self) -> String {
        let digest = Sha256::new().chain_update(b"postrider secret key").chain_update(self.0).finalize();
        let first = digest.first_chunk().expect("the digest has 32 bytes");
        format!("{:016x}", u64::from_be_bytes(*first))
    }

    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("a key of 32 bytes"))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(masked)")
    }
}

/// The key that seals, and older ones that still open. Empty, it can do neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring(Vec<SecretKey>);

/// Why a secret cannot be sealed or opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// There is no key to seal with.
    #[error("secret_key_missing: secrets are kept encrypted, and no secret_key is set")]
    NoKey,
    /// It was sealed with a key that is not here.
    #[error("secret_key_unknown: it was encrypted with the key {0}, which is not among those that are set")]
    UnknownKey(String),
    /// The text is damaged, or belongs elsewhere.
    #[error("secret_damaged: the encrypted secret cannot be opened: it is damaged or belongs to somebody else")]
    Damaged,
}

impl Keyring {
    /// The first key seals; all of them open.
    pub fn new(keys: impl IntoIterator<Item = SecretKey>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// It cannot seal anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The secret as a text that only these keys open, and only for `owner`.
    pub fn seal(&self, secret: &Secret, owner: &str) -> Result<String, KeyringError> {
        self.seal_bytes(secret.expose(), owner)
    }

    /// The same for anything else that is nobody else's business.
    pub fn seal_bytes(&self, bytes: &[u8], owner: &str) -> Result<String, KeyringError> {
        let key = self.0.first().ok_or(KeyringError::NoKey)?;
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the operating system has random bytes");
        let mut sealed = bytes.to_vec();
        key.cipher()
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(owner.as_bytes()), &mut sealed)
            .expect("what is sealed is far shorter than the cipher's limit");
        let text = STANDARD_NO_PAD.encode([nonce.as_slice(), &sealed].concat());
        Ok(format!("{PREFIX}{}:{text}", key.name()))
    }

    /// The secret in a sealed text of `owner`'s.
    pub fn open(&self, text: &str, owner: &str) -> Result<Secret, KeyringError> {
        Secret::from_bytes(self.open_bytes(text, owner)?).map_err(|_| KeyringError::Damaged)
    }

    /// What was sealed in a text of `owner`'s.
    pub fn open_bytes(&self, text: &str, owner: &str) -> Result<Vec<u8>, KeyringError> {
        let (name, sealed) =
            text.strip_prefix(PREFIX).and_then(|rest| rest.split_once(':')).ok_or(KeyringError::Damaged)?;
        let key = self.0.iter().find(|key| key.name() == name);
        let key = key.ok_or_else(|| KeyringError::UnknownKey(name.chars().take(16).collect()))?;
        let bytes = STANDARD_NO_PAD.decode(sealed).map_err(|_| KeyringError::Damaged)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(KeyringError::Damaged)?;
        let mut sealed = sealed.to_vec();
        let opened = key
            .cipher()
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(owner.as_bytes()), &mut sealed)
            .map_err(|_| KeyringError::Damaged)?;
        Ok(opened.to_vec())
    }

    /// Whether a sealed text was sealed with the key that seals now.
    pub fn is_current(&self, text: &str) -> bool {
        self.0.first().is_some_and(|key| text.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with(&key.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_owner_and_under_its_key_only() {
        let (secret, key) = (Secret::generate(), SecretKey::generate());
        let ring = Keyring::new([key.clone()]);
        let sealed = ring.seal(&secret, "acme").unwrap();
        assert!(!sealed.contains(&secret.reveal()["whsec_".len()..]));
        assert_eq!(ring.open(&sealed, "acme"), Ok(secret.clone()));
        assert_eq!(ring.open(&sealed, "globex"), Err(KeyringError::Damaged));
        assert_ne!(ring.seal(&secret, "acme").unwrap(), sealed, "every seal has a nonce of its own");
        let stranger = Keyring::new([SecretKey::generate()]);
        assert_eq!(stranger.open(&sealed, "acme"), Err(KeyringError::UnknownKey(key.name())));
        let mut damaged = sealed.clone();
        damaged.pop();
        assert_eq!(ring.open(&damaged, "acme"), Err(KeyringError::Damaged));
        for text in ["", "sealed:v1:", "whsec_abc"] {
            assert_eq!(ring.open(text, "acme"), Err(KeyringError::Damaged), "{text}");
        }
    }

    #[test]
    fn an_older_key_opens_and_the_newest_seals() {
        let (old, new) = (SecretKey::generate(), SecretKey::generate());
        let secret = Secret::generate();
        let before = Keyring::new([old.clone()]).seal(&secret, "acme").unwrap();
        let ring = Keyring::new([new.clone(), old]);
        assert_eq!(ring.open(&before, "acme"), Ok(secret.clone()));
        assert!(!ring.is_current(&before));
        let after = ring.seal(&secret, "acme").unwrap();
        assert!(ring.is_current(&after));
        assert_eq!(Keyring::new([new]).open(&after, "acme"), Ok(secret));
    }

    #[test]
    fn without_a_key_nothing_is_sealed() {
        assert_eq!(Keyring::default().seal(&Secret::generate(), "acme"), Err(KeyringError::NoKey));
    }

    #[test]
    fn a_key_survives_its_text_and_never_prints_itself() {
        let key = SecretKey::generate();
        assert_eq!(SecretKey::parse(&key.reveal()), Ok(key.clone()));
        assert!(!format!("{key:?}").contains(&key.reveal()));
        for text in ["", "short", "cGFzc3dvcmQ=", &"A".repeat(64)] {
            assert_eq!(SecretKey::parse(text), Err(InvalidSecretKey), "{text}");
        }
    }
}
