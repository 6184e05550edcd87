//! What went wrong, as an outcome.
//!
//! Our own failures cross the HTTP client as [`ConnectFailure`] values and are taken out of its error again by their type;
//! the libraries' are told apart by their types and predicates. No text is searched: a policy that hangs on a sentence ends
//! when the sentence is reworded.

use std::error::Error;
use std::io;

use hyper_util::client::legacy;

use super::stream::{Flood, Stale};
use super::tls;
use crate::outcome::{Outcome, Phase};
use crate::refusal::Refusal;

const BROKE_OFF: &str = "connection closed before the response was complete";
const NO_HEAD: &str = "connection closed before the head of a response was complete";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectFailure {
    #[error("{0}")]
    Dns(String),
    #[error("{0}")]
    Blocked(Refusal),
    #[error("{0}")]
    Connect(String),
    #[error("{0}")]
    Tls(String),
    #[error("the deadline passed while {0}")]
    Timeout(Phase),
    #[error("{0}")]
    Exhausted(Exhausted),
}

/// This process or this machine has no file descriptor left for a connection. That is no fault of the receiver's, who has
/// not heard of the attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no connection could be opened: {0}")]
pub struct Exhausted(String);

impl Exhausted {
    /// What an error of the system says of it, if that is what it says.
    pub(super) fn found_in(error: &io::Error) -> Option<Self> {
        // ENFILE and EMFILE, which have these numbers on every Unix. The standard library has no names for them.
        matches!(error.raw_os_error(), Some(23 | 24)).then(|| Self(error.to_string()))
    }

    /// Why a post got no connection, if it was this.
    pub(super) fn cause_of(error: &legacy::Error) -> Option<Self> {
        match find::<ConnectFailure>(error) {
            Some(ConnectFailure::Exhausted(exhausted)) => Some(exhausted.clone()),
            _ => None,
        }
    }
}

impl From<&ConnectFailure> for Outcome {
    fn from(failure: &ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Dns(detail) => Self::Dns { detail: detail.clone() },
            ConnectFailure::Blocked(refusal) => Self::Blocked(refusal.clone()),
            ConnectFailure::Connect(detail) => Self::Connect { detail: detail.clone() },
            ConnectFailure::Tls(detail) => Self::Tls { detail: detail.clone() },
            ConnectFailure::Timeout(during) => Self::Timeout { during: *during },
            ConnectFailure::Exhausted(exhausted) => Self::Connect { detail: exhausted.to_string() },
        }
    }
}

/// Whether the connection was over before a byte of the request was written to it.
pub(super) fn is_stale(error: &legacy::Error) -> bool {
    find::<io::Error>(error).and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<Stale>()).is_some()
}

/// The outcome of a post that got no response's head.
pub(super) fn before_response(error: &legacy::Error) -> Outcome {
    if let Some(failure) = find::<ConnectFailure>(error) {
        return failure.into();
    }
    if let Some(error) = find::<io::Error>(error) {
        return match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                Outcome::Connect { detail: "connection reset before any response".to_owned() }
            }
            _ => from_io(error),
        };
    }
    match find::<hyper::Error>(error) {
        Some(error) if find_by(error, hyper::Error::is_incomplete_message) => {
            Outcome::Protocol { detail: NO_HEAD.to_owned() }
        }
        Some(error) => from_hyper(error),
        None => Outcome::Protocol { detail: cause(error) },
    }
}

/// The outcome of a post whose response broke off in its body.
pub(super) fn within_response(error: &hyper::Error) -> Outcome {
    match find::<io::Error>(error) {
        Some(error) => from_io(error),
        None => from_hyper(error),
    }
}

fn from_io(error: &io::Error) -> Outcome {
    if let Some(flood) = error.get_ref().and_then(|inner| inner.downcast_ref::<Flood>()) {
        return Outcome::Protocol { detail: flood.to_string() };
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Outcome::Tls { detail: tls::describe_session(error) };
    }
    let detail = match error.kind() {
        io::ErrorKind::UnexpectedEof => BROKE_OFF.to_owned(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            "connection reset before the response was complete".to_owned()
        }
        _ => format!("the response could not be read: {error}"),
    };
    Outcome::Protocol { detail }
}

fn from_hyper(error: &hyper::Error) -> Outcome {
    if find_by(error, hyper::Error::is_incomplete_message) {
        return Outcome::Protocol { detail: BROKE_OFF.to_owned() };
    }
    if find_by(error, hyper::Error::is_parse) {
        return Outcome::Protocol { detail: format!("the response is not valid HTTP: {}", cause(error)) };
    }
    if error.is_timeout() {
        return Outcome::Connect { detail: "connection went dead: an HTTP/2 ping was not answered".to_owned() };
    }
    if find_by(error, |error| error.is_canceled() || error.is_closed()) {
        // The client learns that the connection is over, not how: a reset and an orderly end look alike from here.
        return Outcome::Connect { detail: "connection closed or reset before the request was sent".to_owned() };
    }
    Outcome::Protocol { detail: format!("the response could not be read: {}", cause(error)) }
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|error| error.downcast_ref())
}

fn find_by(error: &hyper::Error, predicate: impl Fn(&hyper::Error) -> bool) -> bool {
    causes(error).filter_map(|error| error.downcast_ref()).any(predicate)
}

/// The sentence closest to the cause. It may quote the receiver, who can be long-winded.
fn cause(error: &(dyn Error + 'static)) -> String {
    let sentence = causes(error).last().map(ToString::to_string).unwrap_or_default();
    sentence.chars().map(|character| if character.is_control() { ' ' } else { character }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_descriptors_is_told_apart_from_what_receivers_do() {
        for (number, ours) in [(23, true), (24, true), (111, false), (110, false), (113, false)] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(Exhausted::found_in(&error).is_some(), ours, "{error}");
        }
        assert_eq!(Exhausted::found_in(&io::Error::other("24")), None);
    }
}
