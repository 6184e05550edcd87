//! What a browser does, without a window: keeps cookies, says where a form comes from, and follows nothing by itself.

use std::collections::BTreeMap;

use http::HeaderMap;
use postrider::Scope;
use url::form_urlencoded;

use crate::stage::{Ask, Stage};

/// Somebody's browser.
pub(crate) struct Browser<'a> {
    pub(crate) stage: &'a Stage,
    pub(crate) cookies: BTreeMap<String, String>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Page {
    /// Where the browser is sent.
    pub(crate) fn location(&self) -> &str {
        assert_eq!(self.status, 303, "{}", self.text);
        self.headers["location"].to_str().unwrap()
    }

    /// The value of a hidden field of the page's forms.
    pub(crate) fn hidden(&self, name: &str) -> String {
        let begin = format!("name=\"{name}\" value=\"");
        let rest = self.text.split_once(&begin).unwrap_or_else(|| panic!("no field {name} in {}", self.text)).1;
        rest.split('"').next().unwrap().to_owned()
    }

    /// The code of the problem that the page tells of.
    pub(crate) fn code(&self) -> &str {
        let rest = self.text.split_once("Code <code>").unwrap_or_else(|| panic!("no problem in {}", self.text)).1;
        rest.split('<').next().unwrap()
    }
}

impl<'a> Browser<'a> {
    /// One that was never here.
    pub(crate) fn new(stage: &'a Stage) -> Self {
        Self { stage, cookies: BTreeMap::new() }
    }

    /// One that has signed in with a new key.
    pub(crate) async fn signed_in(stage: &'a Stage, tenant: Option<&str>, scope: Scope) -> Self {
        let key = stage.key(tenant, scope).await;
        Self::signed_in_with(stage, &key).await
    }

    pub(crate) async fn signed_in_with(stage: &'a Stage, key: &str) -> Self {
        let mut browser = Self::new(stage);
        let answer = browser.sign_in(key).await;
        assert_eq!(answer.location(), "/");
        browser
    }

    pub(crate) async fn sign_in(&mut self, key: &str) -> Page {
        let door = self.get("/sign-in").await;
        let (csrf, next) = (door.hidden("csrf"), door.hidden("next"));
        self.submit("/sign-in", &[("csrf", &csrf), ("next", &next), ("key", key)]).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send(Ask::new("GET", path)).await
    }

    /// A form of the page at `from`, with its token and tenant.
    pub(crate) async fn post(&mut self, from: &str, path: &str, fields: &[(&str, &str)]) -> Page {
        let page = self.get(from).await;
        let (csrf, tenant) = (page.hidden("csrf"), page.hidden("tenant"));
        let mut all = vec![("csrf", csrf.as_str()), ("tenant", tenant.as_str())];
        all.extend(fields);
        self.submit(path, &all).await
    }

    /// A form exactly as it is given.
    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.send(Ask::new("POST", path).header("sec-fetch-site", "same-origin").form(encoded(fields))).await
    }

    pub(crate) async fn send(&mut self, ask: Ask) -> Page {
        let ask = self.with_cookies(ask);
        let answer = self.stage.send(ask).await;
        for line in answer.headers.get_all("set-cookie") {
            let line = line.to_str().unwrap();
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            }
        }
        Page { status: answer.status, headers: answer.headers, text: answer.text }
    }

    pub(crate) fn with_cookies(&self, ask: Ask) -> Ask {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if cookies.is_empty() { ask } else { ask.header("cookie", &cookies.join("; ")) }
    }
}

pub(crate) fn encoded(fields: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}
