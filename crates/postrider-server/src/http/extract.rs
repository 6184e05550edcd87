//! What comes in a request's line: the query, and ids in the path.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::AppState;
use super::body::data_error;
use crate::api::Problem;

/// A query, of which every parameter is known: a misspelt filter would otherwise match everything.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        axum::extract::Query::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            use std::error::Error as _;
            // The innermost error is serde's own; what is around it repeats the parameter's value.
            let text = rejection.source().map_or_else(String::new, ToString::to_string);
            let (field, text) =
                text.split_once(": ").map_or((None, text.as_str()), |(field, text)| (Some(field), text));
            let (_, detail) = data_error(text);
            let problem = Problem::new(400, "query_invalid", format!("the query cannot be understood: {detail}"));
            match field.filter(|field| field.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')) {
                Some(field) => problem.about(field),
                None => problem,
            }
        })
    }
}

/// There is no query here.
pub(super) struct NoQuery;

impl FromRequestParts<AppState> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(Problem::new(400, "query_invalid", "there are no query parameters here")),
        }
    }
}

/// The one id in the path.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: FromStr<Err: ToString>> FromRequestParts<AppState> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Segment(text) = Segment::from_request_parts(parts, state).await?;
        text.parse().map(Self).map_err(|error| Problem::new(400, "id_invalid", error.to_string()).about("id"))
    }
}

/// The one variable part of the path, decoded.
pub(super) struct Segment(pub(super) String);

impl FromRequestParts<AppState> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let refuse = || Problem::new(400, "path_invalid", "the path is not UTF-8 when its escapes are decoded");
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| refuse())?;
        params.iter().next().map(|(_, text)| Self(text.to_owned())).ok_or_else(refuse)
    }
}
