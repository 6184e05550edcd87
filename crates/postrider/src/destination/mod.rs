//! Where deliveries may go.
//!
//! Whoever may name a destination makes our process connect to it. Without a policy that is a way into the network that
//! the process stands in: its loopback interface, its neighbours, the metadata service of its cloud. The policy is
//! pure data, and everything here is a function of it and its arguments; no name is ever looked up here.
//!
//! # What is vetted when
//!
//! 1. **When a URL is named**, [`DestinationPolicy::check_url`] examines its text. First the raw text, because parsers
//!    repair what people and attackers write: they drop tabs, turn backslashes into slashes, fold full-width digits and
//!    decode percent signs, and two parsers that repair differently see two hosts. Nothing that needs repair is taken.
//!    Only then is it parsed, by the rules of the WHATWG, which understand the historic spellings of IPv4 addresses
//!    (`0x7f.1`, `2130706433`, `017700000001`), and the host that comes out is checked. What is kept, shown and dialled
//!    later is the canonical form that was checked, never the text that came in.
//! 2. **Before every attempt** the stored URL is checked again, because the policy may have become stricter since. A
//!    canonical form that was accepted is accepted again by the same policy, unchanged.
//! 3. **At dial**, [`DestinationPolicy::check_address`] vets every address that a name resolved to, and the vetted
//!    address itself is dialled, not the name. Only this stops a name that points inside, or that answers differently
//!    the second time. The checks of names in step 1 are merely earlier and friendlier.
//!
//! # What opens what
//!
//! - `allowed_networks` opens exactly the addresses in it, in their IPv4 and their IPv4-mapped IPv6 spelling. It does
//!   not open other IPv6 addresses that embed an IPv4 one: a router elsewhere would decide where those lead.
//! - `localhost` names may be used once a loopback address is open, names of metadata services once 169.254.169.254 is,
//!   and other names that mean something only inside a network once any network is open, or once `allowed_hosts` has
//!   them. Where such a name leads is still vetted at dial.
//! - `allowed_hosts`, where it has any pattern, narrows: every host must match one, addresses included. It opens no
//!   address.

mod address;
mod host;
mod spelling;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

pub use host::HostPattern;

use crate::refusal::Refusal;
use crate::store::Lane;

pub(crate) const FIELD: &str = "destination_url";

/// Which destinations are accepted. The default accepts every public http and https address, and nothing else.
///
/// ```
/// use postrider::DestinationPolicy;
///
/// let policy = DestinationPolicy::default();
/// assert_eq!(policy.check_url("https://Hooks.Example.com:443")?.as_str(), "https://hooks.example.com/");
/// assert_eq!(policy.check_url("http://0x7f.1/").unwrap_err().code, "destination_loopback_address");
///
/// let policy = policy.allow_networks(["127.0.0.0/8"])?;
/// assert_eq!(policy.check_url("http://0x7f.1/")?.as_str(), "http://127.0.0.1/");
/// # Ok::<(), postrider::Refusal>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestinationPolicy {
    allowed_hosts: Vec<HostPattern>,
    allowed_networks: Vec<IpNet>,
    require_https: bool,
}

impl DestinationPolicy {
    /// Accepts only hosts that match one of these patterns, or one that was given before: `good.com`, `*.good.com` for
    /// its sub-domains, or an address.
    pub fn allow_hosts<T: AsRef<str>>(mut self, patterns: impl IntoIterator<Item = T>) -> Result<Self, Refusal> {
        for pattern in patterns {
            self.allowed_hosts.push(pattern.as_ref().parse()?);
        }
        Ok(self)
    }

    /// Opens these networks, written as CIDRs (`10.0.0.0/8`) or as single addresses.
    pub fn allow_networks<T: AsRef<str>>(mut self, networks: impl IntoIterator<Item = T>) -> Result<Self, Refusal> {
        for network in networks {
            self.allowed_networks.push(address::parse_network(network.as_ref())?);
        }
        Ok(self)
    }

    /// Whether http is refused.
    #[must_use]
    pub fn require_https(mut self, required: bool) -> Self {
        self.require_https = required;
        self
    }

    /// The patterns that hosts must match, if there are any.
    pub fn allowed_hosts(&self) -> &[HostPattern] {
        &self.allowed_hosts
    }

    /// The networks that are open.
    pub fn allowed_networks(&self) -> &[IpNet] {
        &self.allowed_networks
    }

    /// Whether http is refused.
    pub fn requires_https(&self) -> bool {
        self.require_https
    }

    /// Checks a URL as it was written, and returns its canonical form.
    pub fn check_url(&self, text: &str) -> Result<Destination, Refusal> {
        self.examine(text, &mut |_| ())
    }

    /// Checks an address before it is dialled.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Refusal> {
        if self.opens(address) { Ok(()) } else { address::check(address) }
    }

    /// The same as [`check_url`](Self::check_url), telling which rules were applied.
    pub fn explain(&self, text: &str) -> Explanation {
        let mut applied = Vec::new();
        let result = self.examine(text, &mut |rule| applied.push(rule));
        Explanation { applied, result }
    }

    fn opens(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allowed_networks.iter().any(|network| network.contains(&address))
    }

    fn examine(&self, text: &str, apply: &mut dyn FnMut(Rule)) -> Result<Destination, Refusal> {
        apply(Rule::Characters);
        spelling::check_characters(text)?;
        apply(Rule::Scheme);
        let after_scheme = spelling::check_scheme(text)?;
        apply(Rule::UserInfo);
        let authority = spelling::check_user_info(after_scheme)?;
        apply(Rule::Fragment);
        spelling::check_fragment(text)?;
        apply(Rule::Port);
        let host = spelling::check_port(authority)?;
        apply(Rule::HostSpelling);
        spelling::check_host(host)?;
        let url = parse(text)?;
        let destination = Destination { url };

        apply(Rule::Https);
        if self.require_https && !destination.is_https() {
            return Err(Refusal::new(
                "destination_https_required",
                FIELD,
                "the destination uses http, and only https is accepted",
            )
            .hint("use an https URL, or set `require_https` to false"));
        }
        match destination.host() {
            Host::Domain(name) => {
                apply(Rule::HostName);
                self.check_name(name)?;
            }
            Host::Ipv4(address) => {
                apply(Rule::Address);
                self.check_address(address.into())?;
            }
            Host::Ipv6(address) => {
                apply(Rule::Address);
                self.check_address(address.into())?;
            }
        }
        if !self.allowed_hosts.is_empty() {
            apply(Rule::Allowlist);
            if !self.lists(&destination.host()) {
                return Err(Refusal::new(
                    "destination_host_not_allowed",
                    FIELD,
                    format!("the host `{}` matches no pattern of `allowed_hosts`", destination.host()),
                )
                .hint("add the host to `allowed_hosts`; `*.good.com` covers the sub-domains of good.com, not itself"));
            }
        }
        Ok(destination)
    }

    fn lists(&self, host: &Host<&str>) -> bool {
        self.allowed_hosts.iter().any(|pattern| pattern.matches(host))
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let Some(kind) = host::inside_name(name) else {
            return Ok(());
        };
        let open = match kind {
            host::InsideName::Localhost => self.allowed_networks.iter().any(address::touches_loopback),
            host::InsideName::Metadata => self.opens(address::METADATA.into()),
            host::InsideName::Local => !self.allowed_networks.is_empty() || self.lists(&Host::Domain(name)),
        };
        if open { Ok(()) } else { Err(kind.refusal(name)) }
    }
}

fn parse(text: &str) -> Result<Url, Refusal> {
    use url::ParseError;
    let mut url = Url::parse(text).map_err(|error| match error {
        ParseError::EmptyHost => spelling::host_missing(),
        ParseError::InvalidIpv4Address | ParseError::InvalidIpv6Address => {
            Refusal::new("destination_address_invalid", FIELD, "the host looks like an IP address, but is none")
        }
        ParseError::IdnaError | ParseError::InvalidDomainCharacter => host::invalid("it is not a domain name"),
        ParseError::InvalidPort => spelling::port_invalid(),
        other => Refusal::new("destination_url_invalid", FIELD, format!("the destination is not a URL: {other}")),
    })?;
    if let Some(Host::Domain(name)) = url.host() {
        host::check_name_syntax(name)?;
        // A final dot says that the name is complete, which all of ours are; certificates do not have it.
        if let Some(bare) = name.strip_suffix('.').map(str::to_owned) {
            url.set_host(Some(&bare)).map_err(|_| host::invalid("it is not a domain name"))?;
        }
    }
    // Canonical forms can be longer than what was written, and must pass again.
    spelling::check_length(url.as_str())?;
    Ok(url)
}

/// A URL that passed. The only way to make one is [`DestinationPolicy::check_url`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    url: Url,
}

impl Destination {
    /// The canonical text.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The parsed URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether TLS is spoken.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// A name to look up, or an address; either is vetted again at dial.
    pub fn host(&self) -> Host<&str> {
        self.url.host().expect("a URL without a host does not pass")
    }

    /// The host, where it is an address.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host() {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The port to dial.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().expect("http and https have default ports")
    }

    /// The lane of a bare destination: its host, and its port if that is not the scheme's own.
    pub fn lane(&self) -> Lane {
        Lane(self.url.authority().to_owned())
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({})", self.as_str())
    }
}

/// How a URL fared: the rules that were applied, in order, and the result. The last rule is the one that refused it, if
/// it was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// In the order in which they were applied.
    pub applied: Vec<Rule>,
    /// What came of it.
    pub result: Result<Destination, Refusal>,
}

impl Explanation {
    /// The rule that refused it, and why.
    pub fn refused_by(&self) -> Option<(Rule, &Refusal)> {
        let refusal = self.result.as_ref().err()?;
        self.applied.last().map(|rule| (*rule, refusal))
    }
}

/// One step of the examination. Its text is the rule in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// What the raw text may consist of.
    Characters,
    /// What it begins with.
    Scheme,
    /// No user name and no password.
    UserInfo,
    /// Nothing after a `#`.
    Fragment,
    /// Which port.
    Port,
    /// How the host may be written.
    HostSpelling,
    /// Whether http will do.
    Https,
    /// Which names may be used.
    HostName,
    /// Which addresses may be used.
    Address,
    /// Which hosts the operator allows.
    Allowlist,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Characters => "the text is 1 to 2048 visible ASCII characters without backslashes",
            Self::Scheme => "it begins with https:// or http://",
            Self::UserInfo => "it has no user name and no password",
            Self::Fragment => "it has no fragment",
            Self::Port => "its port, if it has one, is from 1 to 65535",
            Self::HostSpelling => "its host is a well-formed name or address, not percent-encoded",
            Self::Https => "it uses https, where that is required",
            Self::HostName => "its name does not belong to the inside of a network, unless one is opened",
            Self::Address => "its address is public, or in an opened network",
            Self::Allowlist => "its host matches a pattern of allowed_hosts",
        })
    }
}
