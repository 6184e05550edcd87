//! A signing secret, which never prints itself.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What a secret's text begins with in the Standard Webhooks format.
const PREFIX: &str = "whsec_";

/// Bytes that sign payloads. `Debug` and `Display` show a mask, so that no log can carry it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// A text that is no secret. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// What follows `whsec_` is not base64.
    #[error("the part of the secret after `whsec_` is not base64")]
    NotBase64,
    /// Too few or too many bytes.
    #[error("a secret has 16 to 256 bytes, this one has {0}")]
    Length(usize),
}

impl Secret {
    /// The secret that a text means: `whsec_` and base64 as Standard Webhooks has it, or else the text's own bytes,
    /// which is how plain HMAC secrets are usually shared.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let bytes = match text.strip_prefix(PREFIX) {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| InvalidSecret::NotBase64)?,
            None => text.as_bytes().to_vec(),
        };
        Self::from_bytes(bytes)
    }

    /// A secret of these bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, InvalidSecret> {
        if (16..=256).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(InvalidSecret::Length(bytes.len())) }
    }

    /// A new random secret of 32 bytes, from the operating system's generator.
    pub fn generate() -> Self {
        let mut bytes = vec![0; 32];
        getrandom::fill(&mut bytes).expect("the operating system has random bytes");
        Self(bytes)
    }

    /// The bytes, for signing.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The `whsec_` text, for showing it once to the person who owns it and for storing it.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(masked)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_****")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_its_text_and_never_prints_itself() {
        let secret = Secret::generate();
        assert_eq!(Secret::parse(&secret.reveal()), Ok(secret.clone()));
        assert!(!format!("{secret:?} {secret}").contains(&secret.reveal()["whsec_".len()..]));
        assert_ne!(Secret::generate(), secret);
    }

    #[test]
    fn a_plain_text_is_its_own_bytes() {
        assert_eq!(Secret::parse("a plain shared secret").unwrap().expose(), b"a plain shared secret");
    }

    #[test]
    fn what_is_no_secret_is_refused_without_repeating_it() {
        assert_eq!(Secret::parse("whsec_%%%"), Err(InvalidSecret::NotBase64));
        assert_eq!(Secret::parse("short"), Err(InvalidSecret::Length(5)));
        assert!(!Secret::parse("short").unwrap_err().to_string().contains("short"));
    }
}
