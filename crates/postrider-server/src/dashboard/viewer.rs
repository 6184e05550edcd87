//! Who is looking, and at what.

use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri, header};
use jiff::Timestamp;
use maud::Markup;
use postrider::event::check_name;
use postrider::store::Operator;
use postrider::{DEFAULT_TENANT, KeyId, Scope};
use url::form_urlencoded;

use super::cookies::{Cookie, Cookies};
use super::flash::Flash;
use super::layout::{self, Frame, Section};
use super::session::Session;
use super::{Desk, shell};
use crate::api::Problem;
use crate::http::{AppState, Notes, caller_with};
use crate::service::{Caller, Service, Tenancy};

/// The code of the problem that somebody is not signed in. The shell sends them to the door.
pub(super) const SIGNED_OUT: &str = "signed_out";

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    pub(super) caller: Caller,
    pub(super) scope: Scope,
    /// The name of the key.
    pub(super) name: String,
    pub(super) key: Option<KeyId>,
    /// What forms bring along.
    pub(super) csrf: String,
    /// Nobody needs a key here.
    pub(super) dev: bool,
}

impl Viewer {
    /// Whoever the cookies of a request belong to, if the key behind them still opens anything.
    pub(super) async fn recognise(headers: &HeaderMap, state: &AppState, cookies: Cookies) -> Result<Self, Problem> {
        let chosen = chosen_tenant(headers, cookies);
        let desk = state.desk();
        if state.config().dev {
            let tenant = chosen.unwrap_or(Tenancy::One(DEFAULT_TENANT.to_owned()));
            let caller = Caller { tenant, operator: Operator("dev".to_owned()), any_tenant: true };
            let (name, csrf) = ("development".to_owned(), desk.dev_token.clone());
            return Ok(Self { caller, scope: Scope::Admin, name, key: None, csrf, dev: true });
        }
        let signed_out = || Problem::new(401, SIGNED_OUT, "sign in with an API key");
        let session = session(headers, desk, cookies).ok_or_else(signed_out)?;
        let key = state.service().recognise(&session.token).await?.ok_or_else(signed_out)?;
        let (scope, id, name) = (key.scope, key.id, key.name.clone());
        let named = chosen.filter(|_| key.tenant.is_none());
        let caller = caller_with(key, named)?;
        Ok(Self { caller, scope, name, key: Some(id), csrf: session.csrf, dev: false })
    }

    /// The tenant as it is written: `*` for all.
    pub(super) fn tenant(&self) -> &str {
        self.caller.tenant.filter().unwrap_or("*")
    }

    /// Several tenants are on one page, so that it must be said whose things are whose.
    pub(super) fn sees_all(&self) -> bool {
        self.caller.tenant == Tenancy::All
    }

    /// Whether buttons that need this scope work. All tenants at once can only be looked at.
    pub(super) fn may(&self, needed: Scope) -> bool {
        self.scope >= needed && (needed == Scope::Read || !self.sees_all())
    }
}

fn session(headers: &HeaderMap, desk: &Desk, cookies: Cookies) -> Option<Session> {
    let now = Timestamp::now();
    cookies.all(headers, Cookie::Session).into_iter().find_map(|cookie| Session::open(&desk.keys, cookie, now))
}

fn chosen_tenant(headers: &HeaderMap, cookies: Cookies) -> Option<Tenancy> {
    let cookie = cookies.all(headers, Cookie::Tenant).into_iter().next()?;
    let (name, _) = form_urlencoded::parse(cookie.as_bytes()).next()?;
    parse_tenancy(&name).ok()
}

/// The tenancy that a text means: a tenant's name, or `*`.
pub(super) fn parse_tenancy(name: &str) -> Result<Tenancy, Problem> {
    if name == "*" {
        return Ok(Tenancy::All);
    }
    check_name("tenant", "tenant_invalid", name)?;
    Ok(Tenancy::One(name.to_owned()))
}

/// Where the shell finds who was let in, for the page that says what went wrong.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(pub(super) Arc<OnceLock<Viewer>>);

/// A look at one page: by whom, when, and with what to say about the last action.
pub(super) struct Look {
    pub(super) viewer: Viewer,
    pub(super) now: Timestamp,
    pub(super) state: AppState,
    pub(super) cookies: Cookies,
    /// Where this server is, for commands that can be copied.
    pub(super) base: String,
    flash: Option<Flash>,
}

impl Look {
    pub(super) fn service(&self) -> &Service {
        self.state.service()
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.viewer.caller
    }

    /// The page itself.
    pub(super) fn page(&self, section: Section, title: &str, body: &Markup) -> Response {
        self.page_with(StatusCode::OK, section, title, body)
    }

    pub(super) fn page_with(&self, status: StatusCode, section: Section, title: &str, body: &Markup) -> Response {
        let frame = Frame {
            viewer: Some(&self.viewer),
            section: Some(section),
            title,
            flash: self.flash.as_ref(),
            now: self.now,
        };
        let mut response = shell::html(status, &layout::document(&frame, body));
        if self.flash.is_some() {
            response.headers_mut().append(header::SET_COOKIE, self.cookies.set(Cookie::Flash, None));
        }
        response
    }

    /// Sends the browser on, with something to say there.
    pub(super) fn done(&self, path: &str, flash: &Flash) -> Response {
        let mut response = Redirect::to(path).into_response();
        let sealed = flash.seal(&self.state.desk().keys);
        response.headers_mut().append(header::SET_COOKIE, self.cookies.set(Cookie::Flash, Some(&sealed)));
        response
    }
}

impl FromRequestParts<AppState> for Look {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let headers = &parts.headers;
        let cookies = Cookies { secure: is_https(headers, state) };
        let viewer = Viewer::recognise(headers, state, cookies).await?;
        if let Some(Slot(slot)) = parts.extensions.get() {
            // A second extractor of the same request finds the same person.
            let _ = slot.set(viewer.clone());
        }
        if let Some(notes) = parts.extensions.get::<Notes>() {
            notes.tenant(viewer.tenant());
            if let Some(key) = viewer.key {
                notes.key(key);
            }
        }
        let again = shell::is_again(headers);
        let flash = cookies.all(headers, Cookie::Flash).into_iter().find_map(|it| Flash::open(&state.desk().keys, it));
        Ok(Self {
            base: base(headers, &parts.uri, cookies),
            // Asked for again, the page in the browser still says what it said.
            flash: flash.filter(|_| !again),
            viewer,
            now: Timestamp::now(),
            state: state.clone(),
            cookies,
        })
    }
}

/// Whether the browser speaks https: with a proxy that says so, if proxies are believed.
pub(super) fn is_https(headers: &HeaderMap, state: &AppState) -> bool {
    let said = headers.get_all("x-forwarded-proto").iter().next_back().and_then(|value| value.to_str().ok());
    let last = said.and_then(|said| said.rsplit(',').next()).map(str::trim);
    state.config().trust_forwarded_proto && last.is_some_and(|proto| proto.eq_ignore_ascii_case("https"))
}

/// The host that was asked for, with its port.
pub(super) fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let authority = match uri.authority() {
        Some(authority) => Some(authority.clone()),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()?.parse().ok()),
    };
    authority.map(|authority: http::uri::Authority| authority.as_str().to_ascii_lowercase())
}

fn base(headers: &HeaderMap, uri: &Uri, cookies: Cookies) -> String {
    let scheme = if cookies.secure { "https" } else { "http" };
    // It is shown inside of quotes in commands that people run.
    let plain = |host: &String| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
    let host = host(headers, uri).filter(plain).unwrap_or_else(|| "127.0.0.1:8400".to_owned());
    format!("{scheme}://{host}")
}
