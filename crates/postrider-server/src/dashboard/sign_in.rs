//! In and out, and whose things to look at.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use maud::{Markup, html};
use postrider::KeyToken;
use url::form_urlencoded;

use super::cookies::{Cookie, Cookies};
use super::form::{self, Anybody, Form};
use super::layout::{self, Frame};
use super::query::Query;
use super::session::Session;
use super::viewer::{Viewer, is_https, parse_tenancy};
use super::{parts, random_token, shell};
use crate::api::Problem;
use crate::http::{AppState, Peer};

/// The form to sign in; whoever is signed in already is sent on.
pub(super) async fn show(State(state): State<AppState>, Query(query): Query, headers: HeaderMap) -> Response {
    let cookies = Cookies { secure: is_https(&headers, &state) };
    if Viewer::recognise(&headers, &state, cookies).await.is_ok() {
        return Redirect::to(local(query.raw("next"))).into_response();
    }
    door(StatusCode::OK, &headers, cookies, local(query.raw("next")), None)
}

/// Lets in whoever shows a key.
pub(super) async fn sign_in(
    State(state): State<AppState>,
    peer: Option<Extension<Peer>>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    form::check_origin(&parts.headers, &parts.uri)?;
    let cookies = Cookies { secure: is_https(&parts.headers, &state) };
    let fields = form::read(&parts.headers, body, &state).await?;
    let next = local(fields.raw("next"));
    let again = |status, why: &str| door(status, &parts.headers, cookies, next, Some(why));
    // Somebody else's page could sign a browser in with somebody else's key; that browser was never shown our form.
    let tokens = cookies.all(&parts.headers, Cookie::Door);
    if !tokens.iter().any(|token| form::check_token(&fields, token).is_ok()) {
        return Ok(again(
            StatusCode::FORBIDDEN,
            "The form was too old, or cookies are switched off. Please try again.",
        ));
    }
    let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Extension(Peer(address))| address.ip());
    if let Some(wait) = state.desk().throttle.wait(address, Instant::now()) {
        let seconds = wait.as_secs() + 1;
        let why = format!("Too many keys did not fit. Please wait {seconds} s.");
        let mut response = again(StatusCode::TOO_MANY_REQUESTS, &why);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return Ok(response);
    }
    let token = KeyToken::parse(fields.text("key"));
    let known = match &token {
        Some(token) => state.service().recognise(token).await?.is_some(),
        None => false,
    };
    let (Some(token), true) = (token, known) else {
        state.desk().throttle.failed(address, Instant::now());
        return Ok(again(StatusCode::UNAUTHORIZED, "That key is unknown or revoked."));
    };
    let session = Session::begin(token, Timestamp::now()).seal(&state.desk().keys);
    let mut response = Redirect::to(next).into_response();
    let headers = response.headers_mut();
    headers.append(header::SET_COOKIE, cookies.set(Cookie::Session, Some(&session)));
    headers.append(header::SET_COOKIE, cookies.set(Cookie::Door, None));
    Ok(response)
}

/// Forgets who was signed in.
pub(super) async fn sign_out(form: Form<Anybody>) -> Response {
    let mut response = Redirect::to("/sign-in").into_response();
    for cookie in [Cookie::Session, Cookie::Tenant, Cookie::Flash] {
        response.headers_mut().append(header::SET_COOKIE, form.look.cookies.set(cookie, None));
    }
    response
}

/// Looks at another tenant, which only a key for all tenants can.
pub(super) async fn choose_tenant(form: Form<Anybody>) -> Result<Response, Problem> {
    if !form.look.caller().any_tenant {
        return Err(Problem::new(403, "tenant_forbidden", "the key is for one tenant"));
    }
    let name = form.fields.text("chosen");
    let name = if name.is_empty() { postrider::DEFAULT_TENANT } else { name };
    parse_tenancy(name)?;
    let value: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    let mut response = Redirect::to("/").into_response();
    response.headers_mut().append(header::SET_COOKIE, form.look.cookies.set(Cookie::Tenant, Some(&value)));
    Ok(response)
}

/// A path of ours, wherever a link says to go on.
fn local(next: &str) -> &str {
    let plain = |next: &str| next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let ours = next.starts_with('/') && !next.starts_with("//") && plain(next) && next.len() <= 2_048;
    if ours { next } else { "/" }
}

fn door(status: StatusCode, headers: &HeaderMap, cookies: Cookies, next: &str, why: Option<&str>) -> Response {
    // Two tabs with the form must not shut each other out.
    let known = cookies.all(headers, Cookie::Door).first().map(|token| (*token).to_owned());
    let token = known.filter(|token| token.len() == 32).unwrap_or_else(random_token);
    let body = sign_in_form(&token, next, why);
    let frame = Frame { viewer: None, section: None, title: "Sign in", flash: None, now: Timestamp::now() };
    let mut response = shell::html(status, &layout::document(&frame, &body));
    response.headers_mut().append(header::SET_COOKIE, cookies.set(Cookie::Door, Some(&token)));
    response
}

fn sign_in_form(token: &str, next: &str, why: Option<&str>) -> Markup {
    html! {
        div.brand.large { (parts::mark()) span { "Postrider" } }
        h1 { "Sign in" }
        @if let Some(why) = why { div.notice.bad role="alert" { p { (why) } } }
        form.stack method="post" action="/sign-in" {
            input type="hidden" name="csrf" value=(token);
            input type="hidden" name="next" value=(next);
            input type="text" name="username" value="API key" autocomplete="username" hidden;
            div.field {
                label for="key" { "API key" }
                input #key type="password" name="key" autocomplete="current-password" required placeholder="prk_…"
                    spellcheck="false" aria-describedby="key-help";
                p #key-help.fineprint {
                    "The first start of the server printed one. What you may do here is what the key may do."
                }
            }
            button.primary type="submit" { "Sign in" }
        }
        details.help {
            summary { "I have no key" }
            p { "On the machine with the database, make one:" }
            (parts::command("postrider keys create --name dashboard --scope admin"))
            p { "To look around on your own machine, no key is needed:" }
            (parts::command("postrider serve --dev"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for next in ["/", "/deliveries?status=dead&cursor=a%20b"] {
            assert_eq!(local(next), next);
        }
        for next in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "evil", "/a b"] {
            assert_eq!(local(next), "/", "{next}");
        }
    }
}
