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
}

impl From<&ConnectFailure> for Outcome {
    fn from(failure: &ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Dns(detail) => Self::Dns { detail: detail.clone() },
            ConnectFailure::Blocked(refusal) => Self::Blocked(refusal.clone()),
            ConnectFailure::Connect(detail) => Self::Connect { detail: detail.clone() },
            ConnectFailure::Tls(detail) => Self::Tls { detail: detail.clone() },
            ConnectFailure::Timeout(during) => Self::Timeout { during: *during },
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
        return Outcome::Connect { detail: "connection closed before the request was sent".to_owned() };
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
