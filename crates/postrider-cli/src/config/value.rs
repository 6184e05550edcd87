//! From what was written to what it means. Each function refuses with the reason; the caller adds key, value and source.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use url::Url;

use crate::config::layers::Written;
use postrider::duration;

/// Why a value is refused.
pub(crate) type Reason = String;

pub(crate) fn text(written: &Written) -> Result<String, Reason> {
    match written {
        Written::Text(text) => Ok(text.trim().to_owned()),
        Written::Bare(bare) => Ok(bare.clone()),
        Written::List(_) => Err("a single value is expected, not an array".to_owned()),
    }
}

pub(crate) fn list(written: &Written) -> Result<Vec<String>, Reason> {
    let items: Vec<String> = match written {
        Written::List(items) => items.iter().map(|item| item.trim().to_owned()).collect(),
        Written::Text(text) if text.trim().is_empty() => Vec::new(),
        Written::Text(text) => text.split(',').map(|item| item.trim().to_owned()).collect(),
        Written::Bare(_) => return Err("a list of texts is expected".to_owned()),
    };
    if items.iter().any(String::is_empty) { Err("one entry of the list is empty".to_owned()) } else { Ok(items) }
}

pub(crate) fn one_duration(written: &Written) -> Result<Duration, Reason> {
    if let Written::Bare(_) = written {
        return Err(format!("a duration is a text with a unit; {}", duration::EXAMPLES));
    }
    duration::parse(&text(written)?)
}

pub(crate) fn duration_within(written: &Written, least: Duration, most: Duration) -> Result<Duration, Reason> {
    let value = one_duration(written)?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("it must be from {} to {}", duration::format(least), duration::format(most)))
    }
}

pub(crate) fn durations(written: &Written) -> Result<Vec<Duration>, Reason> {
    let parse = |item: &String| duration::parse(item).map_err(|reason| format!("`{item}`: {reason}"));
    list(written)?.iter().map(parse).collect()
}

pub(crate) fn number_within<T>(written: &Written, least: T, most: T) -> Result<T, Reason>
where
    T: FromStr + PartialOrd + std::fmt::Display + Copy,
{
    match text(written)?.parse::<T>() {
        Ok(value) if value >= least && value <= most => Ok(value),
        _ => Err(format!("it must be a number from {least} to {most}")),
    }
}

pub(crate) fn truth(written: &Written) -> Result<bool, Reason> {
    match text(written)?.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("it must be true or false".to_owned()),
    }
}

pub(crate) fn socket_address(written: &Written) -> Result<SocketAddr, Reason> {
    text(written)?.parse().map_err(|_| "it must be an IP address and a port, such as 127.0.0.1:8400".to_owned())
}

/// An address with or without the port, which is then the usual one of name servers.
pub(crate) fn name_server(text: &str) -> Result<SocketAddr, Reason> {
    let with_port = text.parse().ok();
    let address = || text.parse().ok().map(|address: IpAddr| SocketAddr::new(address, 53));
    with_port.or_else(address).ok_or_else(|| "each must be an IP address, with a port or without: 10.0.0.2".to_owned())
}

/// The base of a server's URLs, without the slash at its end.
pub(crate) fn server_url(written: &Written) -> Result<Url, Reason> {
    let refuse = || "it must be a URL such as http://127.0.0.1:8400, without user, query and fragment".to_owned();
    let url = Url::parse(&text(written)?).map_err(|_| refuse())?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if matches!(url.scheme(), "http" | "https") && url.has_host() && plain && url.password().is_none() {
        Ok(url)
    } else {
        Err(refuse())
    }
}
