//! Which scheme an endpoint wants, as a value that cannot be wrong.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// What the headers of `hmac-sha256-hex` begin with, unless something else is asked for.
pub const DEFAULT_HEADER_PREFIX: &str = "X-Webhook-";

/// How a payload is signed. See the [module](crate::signature).
///
/// Its text is `standard` or `hmac-sha256-hex`; in JSON and TOML the latter is a table that also has `header_prefix`
/// and `signed`, each of which may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum SignatureScheme {
    /// Standard Webhooks.
    #[default]
    Standard,
    /// `sha256=` and hexadecimal digits, under headers of the receiver's choice.
    HmacSha256Hex {
        /// What the names of the headers begin with.
        header_prefix: HeaderPrefix,
        /// What is signed.
        signed: Signed,
    },
}

impl SignatureScheme {
    /// The names of all schemes.
    pub const NAMES: [&'static str; 2] = ["standard", "hmac-sha256-hex"];

    /// The hex scheme under this header prefix.
    pub fn hmac_sha256_hex(header_prefix: &str, signed: Signed) -> Result<Self, Refusal> {
        Ok(Self::HmacSha256Hex { header_prefix: header_prefix.parse()?, signed })
    }

    /// The scheme that settings describe: its name, and what the hex scheme may say besides.
    pub fn from_parts(name: &str, header_prefix: Option<&str>, signed: Option<&str>) -> Result<Self, Refusal> {
        match name {
            "standard" if header_prefix.is_some() || signed.is_some() => Err(Refusal::new(
                "signature_parameter_unused",
                "signature",
                "the scheme `standard` has fixed headers and takes neither `header_prefix` nor `signed`",
            )
            .hint("leave them out, or use `hmac-sha256-hex`")),
            "standard" => Ok(Self::Standard),
            "hmac-sha256-hex" => {
                let signed = signed.map_or(Ok(Signed::default()), str::parse)?;
                Self::hmac_sha256_hex(header_prefix.unwrap_or(DEFAULT_HEADER_PREFIX), signed)
            }
            _ => Err(Refusal::new(
                "signature_scheme_unknown",
                "signature",
                format!("`{}` is not a signature scheme", shown(name)),
            )
            .hint("use `standard` or `hmac-sha256-hex`")),
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Standard => Self::NAMES[0],
            Self::HmacSha256Hex { .. } => Self::NAMES[1],
        }
    }

    /// The headers that it sets, which no custom header may override.
    pub fn header_names(&self) -> Vec<HeaderName> {
        match self {
            Self::Standard => vec![super::WEBHOOK_ID, super::WEBHOOK_TIMESTAMP, super::WEBHOOK_SIGNATURE],
            Self::HmacSha256Hex { header_prefix: prefix, .. } => {
                vec![prefix.event_id(), prefix.event_type(), prefix.timestamp(), prefix.signature()]
            }
        }
    }
}

impl fmt::Display for SignatureScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SignatureScheme {
    type Err = Refusal;

    fn from_str(name: &str) -> Result<Self, Refusal> {
        Self::from_parts(name, None, None)
    }
}

/// What the hex scheme signs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Signed {
    /// The timestamp's text, a dot, and the body.
    #[default]
    TimestampBody,
    /// The body alone, which lets whoever recorded a request replay it.
    Body,
}

impl Signed {
    /// Its text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimestampBody => "timestamp.body",
            Self::Body => "body",
        }
    }
}

impl fmt::Display for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Signed {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        [Self::TimestampBody, Self::Body].into_iter().find(|signed| signed.as_str() == text).ok_or_else(|| {
            Refusal::new("signature_signed_unknown", "signed", format!("`{}` cannot be signed", shown(text)))
                .hint("use `timestamp.body` or `body`")
        })
    }
}

/// What the hex scheme's headers begin with, such as `X-Acme-`. The four names are made once, when it is checked.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderPrefix {
    text: String,
    names: [HeaderName; 4],
}

impl HeaderPrefix {
    const MAX_BYTES: usize = 64;
    const SUFFIXES: [&'static str; 4] = ["Event-Id", "Event-Type", "Timestamp", "Signature"];

    /// Prefixes that would make our headers pass for others: the standard scheme's, those that every request
    /// carries, and those that proxies and browsers act on.
    const RESERVED: [&'static str; 4] = ["webhook-", "postrider-", "proxy-", "sec-"];

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The header of the event's id.
    pub fn event_id(&self) -> HeaderName {
        self.names[0].clone()
    }

    /// The header of the event's type.
    pub fn event_type(&self) -> HeaderName {
        self.names[1].clone()
    }

    /// The header of the time of signing.
    pub fn timestamp(&self) -> HeaderName {
        self.names[2].clone()
    }

    /// The header of the signature.
    pub fn signature(&self) -> HeaderName {
        self.names[3].clone()
    }
}

impl Default for HeaderPrefix {
    fn default() -> Self {
        DEFAULT_HEADER_PREFIX.parse().expect("the default prefix is a header prefix")
    }
}

impl FromStr for HeaderPrefix {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let invalid = || {
            Refusal::new(
                "signature_header_prefix_invalid",
                "header_prefix",
                format!("`{}` cannot begin the name of a header", shown(text)),
            )
            .hint(format!("use 1 to {} letters, digits and hyphens, such as `X-Acme-`", Self::MAX_BYTES))
        };
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > Self::MAX_BYTES || !text.bytes().all(usable) {
            return Err(invalid());
        }
        let lower = text.to_ascii_lowercase();
        if let Some(reserved) = Self::RESERVED.iter().find(|reserved| lower.starts_with(*reserved)) {
            return Err(Refusal::new(
                "signature_header_prefix_reserved",
                "header_prefix",
                format!("headers that begin with `{reserved}` have a meaning of their own"),
            )
            .hint("use a prefix of your own, such as `X-Acme-`"));
        }
        let name = |suffix: &str| HeaderName::try_from(format!("{text}{suffix}")).map_err(|_| invalid());
        let [id, event_type, timestamp, signature] = Self::SUFFIXES;
        let names = [name(id)?, name(event_type)?, name(timestamp)?, name(signature)?];
        Ok(Self { text: text.to_owned(), names })
    }
}

impl fmt::Display for HeaderPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for HeaderPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeaderPrefix({:?})", self.text)
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_default).collect()
}

/// A scheme as it is written in JSON and TOML: its name alone, or a table.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a signature is `standard`, `hmac-sha256-hex`, or a table with scheme, header_prefix and signed"
)]
enum Written {
    Name(String),
    Table(WrittenTable),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    scheme: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
}

impl From<SignatureScheme> for Written {
    fn from(scheme: SignatureScheme) -> Self {
        let name = scheme.name().to_owned();
        match scheme {
            SignatureScheme::Standard => Self::Name(name),
            SignatureScheme::HmacSha256Hex { header_prefix, signed } => Self::Table(WrittenTable {
                scheme: name,
                header_prefix: Some(header_prefix.text),
                signed: Some(signed.as_str().to_owned()),
            }),
        }
    }
}

impl TryFrom<Written> for SignatureScheme {
    type Error = Refusal;

    fn try_from(written: Written) -> Result<Self, Refusal> {
        match written {
            Written::Name(name) => name.parse(),
            Written::Table(table) => {
                Self::from_parts(&table.scheme, table.header_prefix.as_deref(), table.signed.as_deref())
            }
        }
    }
}
