//! Names: which are well-formed, which mean something only inside a network, and patterns of allowed ones.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use super::FIELD;
use crate::refusal::Refusal;

pub(super) fn invalid(reason: &str) -> Refusal {
    Refusal::new("destination_host_invalid", FIELD, format!("the destination's host is invalid: {reason}"))
}

/// What a resolver and a certificate can deal with. Underscores are no host names by the book, but are in use.
pub(super) fn check_name_syntax(name: &str) -> Result<(), Refusal> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > 253 {
        return Err(invalid("it is longer than 253 characters"));
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(invalid("it has an empty label"));
        }
        if label.len() > 63 {
            return Err(invalid("one of its labels is longer than 63 characters"));
        }
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(invalid("it has a character that is not a letter, a digit, a hyphen or a dot"));
        }
    }
    Ok(())
}

/// Names that mean something only inside a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InsideName {
    /// This machine.
    Localhost,
    /// The metadata service of a cloud, which hands out credentials.
    Metadata,
    /// Some other machine nearby.
    Local,
}

const METADATA_NAMES: [&str; 5] =
    ["metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"];

/// Ends of names that public name servers do not have, by standard or by custom.
const LOCAL_ENDS: [&str; 10] =
    ["local", "internal", "intranet", "localdomain", "lan", "home", "corp", "private", "home.arpa", "onion"];

/// What kind of inside name it is, if it is one. Names are lower case and have no final dot.
pub(super) fn inside_name(name: &str) -> Option<InsideName> {
    let ends_with = |end: &str| name == end || is_below(name, end);
    if ends_with("localhost") || ends_with("localhost.localdomain") || ends_with("localhost6.localdomain6") {
        return Some(InsideName::Localhost);
    }
    if METADATA_NAMES.into_iter().any(ends_with) {
        return Some(InsideName::Metadata);
    }
    let single_label = !name.contains('.');
    (single_label || LOCAL_ENDS.into_iter().any(ends_with)).then_some(InsideName::Local)
}

impl InsideName {
    pub(super) fn refusal(self, name: &str) -> Refusal {
        let refuse = |code, what: &str| Refusal::new(code, FIELD, format!("`{name}` is {what}"));
        match self {
            Self::Localhost => refuse("destination_localhost_name", "a name of this machine itself")
                .hint("to allow it, add `127.0.0.0/8` to `allowed_networks`"),
            Self::Metadata => refuse("destination_metadata_name", "the name of a cloud's metadata service")
                .hint("to allow it, add `169.254.169.254/32` to `allowed_networks`"),
            Self::Local => refuse("destination_local_name", "a name that means something only inside a network")
                .hint("to allow it, add its network to `allowed_networks`, or the name to `allowed_hosts`"),
        }
    }
}

/// Whether `name` is a sub-domain of `parent`.
fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
}

/// One pattern of `allowed_hosts`: a name, `*.` and a name for all its sub-domains, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPattern(Pattern);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Pattern {
    Name(String),
    Below(String),
    Address(IpAddr),
}

impl HostPattern {
    pub(super) fn matches(&self, host: &Host<&str>) -> bool {
        match (&self.0, host) {
            (Pattern::Name(name), Host::Domain(host)) => name == host,
            (Pattern::Below(parent), Host::Domain(host)) => is_below(host, parent),
            (Pattern::Address(address), Host::Ipv4(host)) => *address == IpAddr::V4(*host),
            (Pattern::Address(address), Host::Ipv6(host)) => *address == IpAddr::V6(*host).to_canonical(),
            _ => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let refuse = |reason: &str| {
            let shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
            Refusal::new("allowed_hosts_invalid", "allowed_hosts", format!("`{shown}` is not a host pattern: {reason}"))
                .hint("use `good.com`, `*.good.com` for its sub-domains, or an address; leave the list empty for any host")
        };
        let (below, name) = match text.strip_prefix("*.") {
            Some(parent) => (true, parent),
            None => (false, text),
        };
        let written = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        if name.contains('*') {
            return Err(refuse("a `*` stands only at its beginning, before a dot"));
        }
        if !name.bytes().all(written) {
            return Err(refuse("it has characters that no host has"));
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return if below {
                Err(refuse("addresses have no sub-domains"))
            } else {
                Ok(Self(Pattern::Address(address.to_canonical())))
            };
        }
        let parsed = Host::parse(name).map_err(|_| refuse("it is neither a name nor an address"))?;
        match parsed {
            Host::Domain(name) => {
                check_name_syntax(&name).map_err(|_| refuse("it is not a well-formed name"))?;
                let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
                Ok(Self(if below { Pattern::Below(name) } else { Pattern::Name(name) }))
            }
            _ if below => Err(refuse("addresses have no sub-domains")),
            Host::Ipv4(address) => Ok(Self(Pattern::Address(address.into()))),
            Host::Ipv6(address) => Ok(Self(Pattern::Address(IpAddr::from(address).to_canonical()))),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Name(name) => f.write_str(name),
            Pattern::Below(parent) => write!(f, "*.{parent}"),
            Pattern::Address(address) => address.fmt(f),
        }
    }
}
