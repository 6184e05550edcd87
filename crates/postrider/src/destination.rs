//! Where deliveries may go.

use std::net::IpAddr;

use crate::refusal::Refusal;
use crate::store::Lane;

/// Which destinations are accepted.
#[derive(Debug, Clone, Default)]
pub struct DestinationPolicy {}

/// A URL that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    url: url::Url,
}

impl Destination {
    /// The canonical text.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// The parsed URL.
    pub fn url(&self) -> &url::Url {
        &self.url
    }

    /// The lane of a bare destination: its host, and its port if that is not the scheme's own.
    pub fn lane(&self) -> Lane {
        Lane(self.url.authority().to_owned())
    }
}

impl DestinationPolicy {
    /// Checks a URL as it was written.
    pub fn check_url(&self, text: &str) -> Result<Destination, Refusal> {
        let url = url::Url::parse(text).map_err(|error| Refusal::new("x", "destination_url", error.to_string()))?;
        Ok(Destination { url })
    }

    /// Checks an address before it is dialled.
    pub fn check_address(&self, _address: IpAddr) -> Result<(), Refusal> {
        Ok(())
    }
}
