//! The raw text of a URL, before a parser can repair it. Each function takes what the one before left over.
//!
//! The refusals quote at most the scheme and the host: paths and queries often carry tokens.

use super::{FIELD, host};
use crate::refusal::Refusal;

/// The longest URL that is taken. Everything on the way to a receiver handles this much.
pub(super) const MAX_URL_BYTES: usize = 2_048;

pub(super) fn check_length(text: &str) -> Result<(), Refusal> {
    if text.len() > MAX_URL_BYTES {
        return Err(Refusal::new(
            "destination_too_long",
            FIELD,
            format!("the destination has {} bytes, at most {MAX_URL_BYTES} are taken", text.len()),
        ));
    }
    Ok(())
}

pub(super) fn check_characters(text: &str) -> Result<(), Refusal> {
    let refuse = |code, detail: &str| Refusal::new(code, FIELD, detail);
    if text.is_empty() {
        return Err(refuse("destination_empty", "the destination is empty"));
    }
    check_length(text)?;
    for character in text.chars() {
        match character {
            // Parsers drop tabs and line breaks silently, wherever they stand.
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
                let detail = format!("the destination contains the control character U+{:04X}", u32::from(character));
                return Err(Refusal::new("destination_control_character", FIELD, detail));
            }
            ' ' => return Err(refuse("destination_whitespace", "the destination contains a space").hint("write %20")),
            '\\' => {
                let detail = "the destination contains a backslash, which some parsers take for a slash";
                return Err(refuse("destination_backslash", detail).hint("write / or %5C"));
            }
            '!'..='~' => {}
            _ => {
                let detail = format!("the destination contains U+{:04X}, which is not ASCII", u32::from(character));
                return Err(Refusal::new("destination_not_ascii", FIELD, detail)
                    .hint("write a host in its xn-- form, and anything else percent-encoded"));
            }
        }
    }
    Ok(())
}

/// Returns what follows `https:`.
pub(super) fn check_scheme(text: &str) -> Result<&str, Refusal> {
    let hint = "begin with https:// or http://";
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    match text.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") => Ok(rest),
        Some((scheme, _)) if is_scheme(scheme) && scheme.len() <= 32 => Err(Refusal::new(
            "destination_scheme",
            FIELD,
            format!("the destination's scheme is `{scheme}`, only http and https are accepted"),
        )
        .hint(hint)),
        _ => Err(Refusal::new("destination_scheme", FIELD, "the destination has no scheme").hint(hint)),
    }
}

/// Returns the host and port.
pub(super) fn check_user_info(after_scheme: &str) -> Result<&str, Refusal> {
    // Parsers accept any number of slashes here, and would find a host further on.
    let rest = after_scheme.strip_prefix("//").ok_or_else(host_missing)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Refusal::new(
            "destination_user_info",
            FIELD,
            "the destination has a user name or a password in it",
        )
        .hint("receivers know us by the signature; a token can be sent in an endpoint's own header"));
    }
    Ok(authority)
}

pub(super) fn check_fragment(text: &str) -> Result<(), Refusal> {
    if text.contains('#') {
        return Err(Refusal::new("destination_fragment", FIELD, "the destination has a fragment, which is never sent")
            .hint("leave out everything from # on, or write %23"));
    }
    Ok(())
}

/// Returns the host.
pub(super) fn check_port(authority: &str) -> Result<&str, Refusal> {
    let (host, port) = if authority.starts_with('[') {
        match authority.split_once(']') {
            Some((_, "")) => (authority, None),
            Some((inside, after)) => {
                let port = after.strip_prefix(':').ok_or_else(|| host::invalid("something follows its ]"))?;
                (&authority[..=inside.len()], Some(port))
            }
            None => return Err(host::invalid("its ] is missing")),
        }
    } else {
        match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(host::invalid("it has several colons").hint("put an IPv6 address in brackets"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err(host_missing());
    }
    let valid = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|number| number != 0)
    };
    if port.is_some_and(|port| !valid(port)) {
        return Err(port_invalid());
    }
    Ok(host)
}

pub(super) fn check_host(host: &str) -> Result<(), Refusal> {
    if host.contains('%') {
        return Err(Refusal::new(
            "destination_percent_encoded_host",
            FIELD,
            "the destination's host is percent-encoded or has a zone",
        )
        .hint("write the host out, in its xn-- form where it is not ASCII"));
    }
    if host.starts_with('[') {
        return Ok(());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.split('.').any(str::is_empty) {
        return Err(Refusal::new(
            "destination_empty_label",
            FIELD,
            "the destination's host has an empty label: two dots in a row, or one at its beginning",
        ));
    }
    Ok(())
}

pub(super) fn host_missing() -> Refusal {
    Refusal::new("destination_host_missing", FIELD, "the destination has no host").hint("write https://host/path")
}

pub(super) fn port_invalid() -> Refusal {
    Refusal::new("destination_port_invalid", FIELD, "the destination's port is not a number from 1 to 65535")
}
