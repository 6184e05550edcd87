//! Around every page: problems become pages, whoever is not signed in is sent to the door, and a page keeps to itself.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use maud::{Markup, html};

use super::cookies::Cookies;
use super::layout::{self, Frame};
use super::parts;
use super::query::link;
use super::viewer::{SIGNED_OUT, Slot, Viewer, is_https};
use crate::api::Problem;
use crate::http::{AppState, Routine, Teller, is_for_people, unknown_route};

/// Nothing from elsewhere, and neither scripts nor styles within a page: what a receiver answered can be shown, and does nothing.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// In which the script says that it asks again for a page that is shown already.
const AGAIN: HeaderName = HeaderName::from_static("postrider-again");

pub(super) fn is_again(headers: &HeaderMap) -> bool {
    headers.contains_key(AGAIN)
}

/// A page as an answer.
pub(super) fn html(status: StatusCode, page: &Markup) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.0.clone()).into_response()
}

/// What is known of a request when its answer is made.
struct Asked {
    get: bool,
    again: bool,
    from_elsewhere: bool,
    path: String,
    slot: Slot,
}

pub(super) async fn shell(mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let asked = Asked {
        get: request.method() == Method::GET,
        again: is_again(headers),
        from_elsewhere: headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site"),
        path: request.uri().path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned()),
        slot: Slot::default(),
    };
    request.extensions_mut().insert(asked.slot.clone());
    let mut response = next.run(request).await;
    let signed_out = response.extensions().get::<Problem>().is_some_and(|problem| problem.code == SIGNED_OUT);
    if signed_out {
        response = to_the_door(&asked);
    } else if response.extensions().get::<Problem>().is_some() {
        let slot = asked.slot.clone();
        response.extensions_mut().insert(Teller(Arc::new(move |problem| trouble(problem, slot.0.get()))));
    } else if asked.again {
        response.extensions_mut().insert(Routine);
    }
    protect(response.headers_mut());
    response
}

/// The cookie does not come along when somebody follows a link from elsewhere. Whoever is signed in should not have to sign in
/// again for that, so the page first asks for itself once more, which is then a request of our own.
fn to_the_door(asked: &Asked) -> Response {
    if asked.get && asked.from_elsewhere {
        let page = html! {
            (maud::DOCTYPE)
            html lang="en" {
                head { meta charset="utf-8"; meta http-equiv="refresh" content="0"; title { "Postrider" } }
                body { p { a href=(asked.path) { "Continue to Postrider" } } }
            }
        };
        return html(StatusCode::OK, &page);
    }
    let next = if asked.get && asked.path != "/" { asked.path.as_str() } else { "" };
    Redirect::to(&link("/sign-in", [("next", next)])).into_response()
}

/// Where there is nothing: a page for whoever looks with a browser, with the way to everywhere if they are signed in.
pub(crate) async fn nowhere(State(state): State<AppState>, request: Request) -> Response {
    let (headers, for_people) = (request.headers().clone(), is_for_people(request.headers(), request.uri()));
    let mut response = unknown_route(request).await.into_response();
    if for_people {
        let cookies = Cookies { secure: is_https(&headers, &state) };
        let viewer = Viewer::recognise(&headers, &state, cookies).await.ok();
        response.extensions_mut().insert(Teller(Arc::new(move |problem| trouble(problem, viewer.as_ref()))));
    }
    response
}

/// A problem of which nothing else is known than itself, as a page.
pub(crate) fn tell_people(problem: &Problem) -> Response {
    trouble(problem, None)
}

fn trouble(problem: &Problem, viewer: Option<&Viewer>) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let title = match problem.status {
        403 => "Not allowed",
        404 => "Not found",
        405 => "Not like this",
        409 => "Not now",
        400..500 => "That did not work",
        503 => "Try again in a moment",
        _ => "Something went wrong",
    };
    // The API names a header, which people in front of a page do not send.
    let hint = match problem.code.as_str() {
        "tenant_ambiguous" => Some("choose one tenant at the top of the page"),
        "route_unknown" => Some("the address may have been cut off or mistyped"),
        "method_not_allowed" => Some("this is where a form is sent to: go back to the page with the form"),
        _ => problem.hint.as_deref(),
    };
    let body = html! {
        div.trouble {
            h1 { (title) }
            p.lead { (parts::remark(&problem.detail)) }
            @if let Some(hint) = hint { p { (parts::remark(hint)) } }
            p.actions {
                a.button.primary href="/" { "To the overview" }
                a.button href="/docs" { "API reference" }
            }
            p.fineprint {
                "Code " code { (problem.code) }
                @if let Some(id) = &problem.request_id { ", request " code { (id) } ", under which the server’s log tells more" }
                "."
            }
        }
    };
    let frame = Frame { viewer, section: None, title, flash: None, now: Timestamp::now() };
    let mut response = html(status, &layout::document(&frame, &body));
    protect(response.headers_mut());
    if problem.status == 503 || problem.status == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// A remark as a sentence: with a capital and a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with(['.', '!', '?', '…', ':']) { "" } else { "." };
    format!("{first}{}{stop}", characters.as_str())
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        // Nobody else is told where somebody comes from; and our own forms can be told from those of others.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
