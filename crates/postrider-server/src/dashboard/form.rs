//! Forms: who may send them, and that they come from a page of ours.
//!
//! A page elsewhere can make a browser send a form here. Three things keep it from having an effect: the session's cookie does
//! not come along (`SameSite=Strict`), the browser says where the form comes from, and the form lacks the token that only a
//! page of this session has.

use std::marker::PhantomData;

use axum::extract::{FromRequest, FromRequestParts as _, Request};
use http::{HeaderMap, Uri, header};
use postrider::Scope;
use subtle::ConstantTimeEq as _;

use super::query::Fields;
use super::viewer::{Look, host};
use crate::api::Problem;
use crate::http::{AppState, read_body};

/// More than any form here has: a payload of the largest size, with every byte escaped.
const MOST_BYTES: usize = 1024 * 1024;

/// Which scope a form needs.
pub(super) trait Needs {
    const SCOPE: Scope;
}

/// Everybody who is signed in.
pub(super) struct Anybody;

/// Whoever may act.
pub(super) struct Writers;

/// Whoever may manage keys.
pub(super) struct Admins;

impl Needs for Anybody {
    const SCOPE: Scope = Scope::Read;
}

impl Needs for Writers {
    const SCOPE: Scope = Scope::Write;
}

impl Needs for Admins {
    const SCOPE: Scope = Scope::Admin;
}

/// A form of somebody who may send it.
pub(super) struct Form<N> {
    pub(super) look: Look,
    pub(super) fields: Fields,
    needs: PhantomData<N>,
}

impl<N: Needs> FromRequest<AppState> for Form<N> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        check_origin(&parts.headers, &parts.uri)?;
        let look = Look::from_request_parts(&mut parts, state).await?;
        let viewer = &look.viewer;
        if viewer.scope < N::SCOPE {
            let detail = format!("this needs a key of scope {}, the key's scope is {}", N::SCOPE, viewer.scope);
            return Err(Problem::new(403, "scope_insufficient", detail).hint("sign in with a key of that scope"));
        }
        let fields = read(&parts.headers, body, state).await?;
        check_token(&fields, &viewer.csrf)?;
        // Another tab may have changed the tenant since the form was shown.
        if fields.text("tenant") != viewer.tenant() {
            let detail =
                format!("the form is of tenant {}, and you look at {}", fields.text("tenant"), viewer.tenant());
            return Err(Problem::new(409, "tenant_changed", detail)
                .hint("choose that tenant again, or go back and reload the page"));
        }
        Ok(Self { look, fields, needs: PhantomData })
    }
}

/// The fields of a form.
pub(super) async fn read(headers: &HeaderMap, body: axum::body::Body, state: &AppState) -> Result<Fields, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Problem::new(415, "content_type_unsupported", "this takes the form of its page, and nothing else"));
    }
    Ok(Fields::parse(&read_body(headers, body, state, MOST_BYTES).await?))
}

/// That a form has the token that its page was given.
pub(super) fn check_token(fields: &Fields, token: &str) -> Result<(), Problem> {
    if bool::from(fields.raw("csrf").as_bytes().ct_eq(token.as_bytes())) && !token.is_empty() {
        return Ok(());
    }
    let detail = "the form is not from a page of this session";
    Err(Problem::new(403, "csrf_token_invalid", detail).hint("go back, reload the page, and try again"))
}

/// That a form was sent by a page of this server: as the browser says, or by its origin where the browser does not.
pub(super) fn check_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let refuse = || {
        let detail = "the form was not sent by a page of this server";
        Err(Problem::new(403, "origin_forbidden", detail)
            .hint("a proxy in front of the server must pass the header Host on as it is"))
    };
    if let Some(site) = headers.get("sec-fetch-site") {
        return if site == "same-origin" { Ok(()) } else { refuse() };
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(Ok(origin)), None) = (origins.next().map(|origin| origin.to_str()), origins.next()) else {
        return refuse();
    };
    let of_origin = origin.split_once("://").map(|(_, host)| host.to_ascii_lowercase());
    if of_origin.is_some() && of_origin == host(headers, uri) { Ok(()) } else { refuse() }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        check_origin(&headers, &Uri::from_static("/deliveries")).is_ok()
    }

    #[test]
    fn a_form_comes_from_a_page_of_this_server() {
        let host = ("host", "Postrider.example:8400");
        assert!(checked(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(checked(&[host, ("origin", "http://postrider.example:8400")]));
        assert!(checked(&[("host", "inner"), ("origin", "https://outer"), ("sec-fetch-site", "same-origin")]));
        for refused in [
            &[host][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://postrider.example")],
            &[host, ("origin", "https://evil.example")],
            &[host, ("origin", "http://postrider.example:8400"), ("origin", "https://evil.example")],
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "http://postrider.example:8400")],
            &[host, ("sec-fetch-site", "same-site")],
            &[("origin", "null")],
        ] {
            assert!(!checked(refused), "{refused:?}");
        }
    }

    #[test]
    fn an_empty_token_is_no_token() {
        assert!(check_token(&Fields::parse(b"csrf=abc"), "abc").is_ok());
        assert!(check_token(&Fields::parse(b"csrf=abd"), "abc").is_err());
        assert!(check_token(&Fields::parse(b""), "").is_err());
    }
}
