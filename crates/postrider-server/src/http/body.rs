//! Bodies: read within bounds of size and time, and understood strictly.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::AppState;
use crate::api::Problem;
use crate::api::object::Object;

/// What most requests may have.
const MOST_BYTES: usize = 1024 * 1024;

/// What a client that sends too much may still send, so that it gets to read the answer.
const DISCARDED_BYTES: usize = 1024 * 1024;
const DISCARDING: Duration = Duration::from_secs(1);

/// What is kept of bodies is counted in pages of this size.
pub(super) const PAGE_BYTES: usize = 4_096;

/// A body that was read. It has its part of what bodies may have together until it is dropped.
pub(crate) struct Read {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Deref for Read {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A JSON body, of which every field is known.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        parse(&read_json(request, state, MOST_BYTES).await?).map(|Object(value)| Self(value))
    }
}

/// A JSON body that may be left out, or null.
pub(super) struct OptionalBody<T>(pub(super) Option<T>);

impl<T: DeserializeOwned> FromRequest<AppState> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = read(&parts.headers, body, state, MOST_BYTES).await?;
        if bytes.is_empty() {
            return Ok(Self(None));
        }
        check_content_type(&parts.headers)?;
        check_text(&bytes)?;
        parse(&bytes).map(|value: Option<Object<T>>| Self(value.map(|Object(value)| value)))
    }
}

/// The bytes of a body that says to be JSON.
pub(super) async fn read_json(request: Request, state: &AppState, most_bytes: usize) -> Result<Read, Problem> {
    let (parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    let bytes = read(&parts.headers, body, state, most_bytes).await?;
    check_text(&bytes)?;
    Ok(bytes)
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refuse = |detail: &str| {
        Err(Problem::new(415, "content_type_unsupported", detail).hint("send `Content-Type: application/json`"))
    };
    let mut given = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return refuse("the body's content type must be given, once");
    };
    let Ok(value) = value.to_str() else { return refuse("the content type cannot be read") };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if !essence.eq_ignore_ascii_case("application/json") {
        return refuse("the body must be application/json");
    }
    // JSON is UTF-8; whoever says that it is something else has sent something else.
    let utf8 = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    };
    if !parts.all(utf8) {
        return refuse("JSON is encoded in UTF-8");
    }
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return refuse("compressed bodies are not taken");
    }
    Ok(())
}

/// The bytes of a body, whatever they are.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: HttpBody,
    state: &AppState,
    most_bytes: usize,
) -> Result<Read, Problem> {
    let too_large = || {
        Problem::new(
            413,
            "body_too_large",
            format!("the body has more than {most_bytes} bytes, which is the most here"),
        )
    };
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let limit = state.config().body_read_timeout;
    if declared.is_some_and(|declared| declared > most_bytes as u64) {
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large());
    }
    let mut body = body;
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut room = room(state, 0)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                tracing::debug!(%error, "a body broke off");
                Problem::new(400, "body_incomplete", "the body broke off, or is not framed as its headers say")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > most_bytes {
                return Err(too_large());
            }
            // Taken as it arrives: who only says that much will come does not keep others out.
            let pages = (bytes.len() + data.len()).div_ceil(PAGE_BYTES) - room.num_permits();
            room.merge(self::room(state, pages)?);
            bytes.extend_from_slice(&data);
        }
        Ok(Read { bytes: bytes.freeze(), _room: room })
    };
    let read = tokio::time::timeout(limit, reading).await.unwrap_or_else(|_| {
        let detail = format!("the body did not arrive within {}", postrider::duration::format(limit));
        Err(Problem::new(408, "body_timeout", detail))
    });
    if let Err(problem) = &read
        && problem.status == 413
    {
        discard(body).await;
    }
    read
}

fn room(state: &AppState, pages: usize) -> Result<OwnedSemaphorePermit, Problem> {
    let room = Arc::clone(&state.0.body_room).try_acquire_many_owned(u32::try_from(pages).unwrap_or(u32::MAX));
    room.map_err(|_| Problem::new(503, "overloaded", "too much is being sent at once"))
}

/// Reads on for a moment: a connection that is closed while the client sends loses the answer.
async fn discard(mut body: HttpBody) {
    let discarding = async {
        let mut left = DISCARDED_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARDING, discarding).await;
}

fn check_text(bytes: &[u8]) -> Result<(), Problem> {
    if bytes.is_empty() {
        return Err(Problem::new(400, "body_empty", "the body is empty; it must be JSON"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::new(400, "body_not_utf8", format!("the body is not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    if text.starts_with('\u{feff}') {
        let detail = "the body begins with a byte order mark, which JSON does not allow";
        return Err(Problem::new(400, "body_byte_order_mark", detail).hint("encode it without a byte order mark"));
    }
    Ok(())
}

/// Reads JSON strictly. What is wrong is told with its place, but without repeating a value.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => Err(explain::<T>(bytes, &error)),
    }
}

fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Problem {
    use serde_json::error::Category;
    let place = format!("at line {}, column {}", error.line(), error.column());
    if error.classify() != Category::Data {
        let text = error.to_string();
        return if text.starts_with("recursion limit") {
            Problem::new(400, "body_too_deep", format!("the body is nested too deeply {place}"))
        } else if text.starts_with("trailing characters") {
            Problem::new(
                400,
                "body_trailing_data",
                format!("the body is one JSON value, and something follows it {place}"),
            )
        } else if text.contains("surrogate") || text.starts_with("unexpected end of hex escape") {
            Problem::new(400, "body_lone_surrogate", format!("the body has half of a surrogate pair {place}"))
        } else {
            Problem::new(400, "body_not_json", format!("the body is not JSON {place}"))
        };
    }
    // Read a second time, now keeping track of where it is.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let field = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(error) => error.path().to_string(),
        Ok(_) => ".".to_owned(),
    };
    let (code, detail) = data_error(&error.to_string());
    let problem = Problem::new(422, code, format!("{detail} {place}"));
    if field == "." || field == "?" { problem } else { problem.about(field) }
}

/// The kind of a serde error, and its text without the value that it quotes.
pub(super) fn data_error(text: &str) -> (&'static str, String) {
    let text = text.rsplit_once(" at line ").map_or(text, |(text, _)| text);
    let code = if text.starts_with("unknown field") {
        "field_unknown"
    } else if text.starts_with("missing field") {
        "field_missing"
    } else if text.starts_with("duplicate field") {
        "field_repeated"
    } else {
        "field_invalid"
    };
    let quoting = text.starts_with("invalid type") || text.starts_with("invalid value");
    match text.rsplit_once(", expected ") {
        Some((_, expected)) if quoting => (code, format!("expected {expected}")),
        _ => (code, text.to_owned()),
    }
}
