//! Requests to a server, and what its answers mean.
//!
//! The key is in one header, marked as sensitive, and in nothing that is printed. Redirects are not followed, since they
//! would take the key along; proxies of the environment are not used for the same reason. What is read of an answer is
//! bounded, in size and in time.

use std::error::Error as _;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use postrider::{KeyToken, duration};
use postrider_server::api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::failure::{Exit, Failure, exit_of};
use crate::output::plain;

/// For becoming connected.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a whole request, its answer included. A server does bulk work in steps, so none of them takes long.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Larger answers are not read: a page of events with payloads is far below.
const MOST_BYTES: usize = 128 << 20;
/// Errors are small.
const MOST_ERROR_BYTES: usize = 64 << 10;

const TENANT: HeaderName = HeaderName::from_static("postrider-tenant");

/// Talks to one server, as one tenant or as the key's.
#[derive(Debug)]
pub(crate) struct HttpClient {
    base: Url,
    client: reqwest::Client,
}

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Request {
    method: Method,
    path: Vec<String>,
    query: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// To look. Every part of the path is escaped, slashes in it too.
    pub(crate) fn get(path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Method::GET, path)
    }

    /// To do something.
    pub(crate) fn post(path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Method::POST, path)
    }

    /// To change something.
    pub(crate) fn patch(path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Method::PATCH, path)
    }

    /// To remove something.
    pub(crate) fn delete(path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Method::DELETE, path)
    }

    fn new(method: Method, path: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        Self { method, path, query: Vec::new(), body: None }
    }

    /// With a query of these fields.
    #[must_use]
    pub(crate) fn query(mut self, fields: &impl Serialize) -> Self {
        let Value::Object(fields) = serde_json::to_value(fields).expect("a query is plain data") else {
            unreachable!("a query has fields");
        };
        self.query = fields
            .into_iter()
            .filter_map(|(name, value)| match value {
                Value::Null => None,
                Value::String(text) => Some((name, text)),
                value => Some((name, value.to_string())),
            })
            .collect();
        self
    }

    /// With a JSON body.
    #[must_use]
    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("what is sent is plain data"));
        self
    }
}

/// With what status a URL answers within this time, asked without a key; or why there is no answer.
pub(crate) async fn status(url: &Url, within: Duration) -> Result<StatusCode, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .user_agent(concat!("postrider-cli/", env!("CARGO_PKG_VERSION")))
        .timeout(within)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|error| innermost(&error))?;
    match client.get(url.clone()).send().await {
        Ok(response) => Ok(response.status()),
        Err(error) if error.is_timeout() => Err(format!("no answer within {}", duration::format(within))),
        Err(error) => Err(innermost(&error)),
    }
}

impl HttpClient {
    /// A client of the server at this URL.
    pub(crate) fn new(base: Url, key: Option<&KeyToken>, tenant: Option<&str>) -> Result<Self, Failure> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.reveal())).expect("a key is plain ASCII");
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(tenant) = tenant {
            headers.insert(TENANT, header_value(tenant)?);
        }
        // The command line is the whole process, so nobody else has chosen a provider; if somebody had, it would do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("postrider-cli/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| Failure::new(Exit::Failed, "client_failed", innermost(&error)))?;
        Ok(Self { base, client })
    }

    /// Asks, and decodes the answer.
    pub(crate) async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<T, Failure> {
        let (_, bytes) = self.answer(request).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| self.unexpected(&format!("it is not what was expected: {error}")))
    }

    /// Asks where there is nothing to be said in answer.
    pub(crate) async fn send_only(&self, request: Request) -> Result<(), Failure> {
        self.answer(request).await.map(drop)
    }

    async fn answer(&self, request: Request) -> Result<(StatusCode, Vec<u8>), Failure> {
        let mut built = self.client.request(request.method.clone(), self.url(&request));
        if let Some(body) = request.body {
            built = built.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = built.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok((status, self.read(response, MOST_BYTES).await?));
        }
        Err(self.refused(status, &self.read(response, MOST_ERROR_BYTES).await.unwrap_or_default()))
    }

    fn url(&self, request: &Request) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .expect("an http URL has a path")
            .pop_if_empty()
            .extend(std::iter::once("v1").chain(request.path.iter().map(String::as_str)));
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        url
    }

    async fn read(&self, mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if bytes.len() + chunk.len() > most {
                return Err(self.unexpected(&format!("it has more than {most} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let told = |code, message: String| Failure::new(Exit::CannotConnect, code, plain(&message, 1_000));
        let hint = "check --server (or POSTRIDER_SERVER), and that `postrider serve` is running there";
        if error.is_timeout() {
            let message = format!("the server at {} did not answer in time", self.base);
            return told("server_timeout", message).hint(hint);
        }
        let cause = innermost(error);
        let message = format!("cannot reach the server at {}: {cause}", self.base);
        if cause.contains("certificate") {
            return told("server_untrusted", message).hint(
                "use the name that its certificate has; SSL_CERT_FILE names a file with an authority of your own",
            );
        }
        told("server_unreachable", message).hint(hint)
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        if let Ok(mut problem) = serde_json::from_slice::<Problem>(body) {
            // Nothing that is set here opens a network there.
            problem.hint = problem
                .hint
                .map(|hint| hint.replace("`allowed_networks`", "allowed_networks in the server's configuration"));
            return problem.into();
        }
        if status.is_redirection() {
            let message = format!("the server at {} answers {status}: it wants to be asked elsewhere", self.base);
            return Failure::new(Exit::Failed, "server_redirects", message).hint(
                "name the final URL with --server; redirects are not followed, so that no other server gets the key",
            );
        }
        let message = format!("the server at {} answers {status}, and not as Postrider does", self.base);
        Failure::new(exit_of(status.as_u16()), "answer_unexpected", message)
            .hint("check --server (or POSTRIDER_SERVER), and what stands between here and the server")
    }

    fn unexpected(&self, why: &str) -> Failure {
        let message = format!("cannot read the answer of the server at {}: {}", self.base, plain(why, 300));
        Failure::new(Exit::Failed, "answer_unexpected", message)
            .hint("check that --server names a Postrider server, and that its version is this program's")
    }
}

/// A tenant goes into a header, which takes no line breaks and the like.
fn header_value(tenant: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::try_from(tenant).ok().filter(|value| value.to_str().is_ok() && !tenant.is_empty()).ok_or_else(|| {
        let message = format!("--tenant `{}` is not printable ASCII", plain(tenant, 64));
        Failure::new(Exit::Refused, "tenant_invalid", message)
    })
}

/// The last cause is what a person can do something about: `Connection refused (os error 111)`.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(base: &str) -> HttpClient {
        HttpClient::new(base.parse().unwrap(), Some(&KeyToken::generate()), Some("acme")).unwrap()
    }

    #[test]
    fn paths_are_escaped_and_stand_below_the_base() {
        let request = || Request::get(["once", "plan/1 ü?#"]).query(&serde_json::json!({ "limit": 5, "cursor": null }));
        for (base, expected) in [
            ("http://127.0.0.1:8400", "http://127.0.0.1:8400/v1/once/plan%2F1%20%C3%BC%3F%23?limit=5"),
            ("https://a.example/hooks/", "https://a.example/hooks/v1/once/plan%2F1%20%C3%BC%3F%23?limit=5"),
            ("https://a.example/hooks", "https://a.example/hooks/v1/once/plan%2F1%20%C3%BC%3F%23?limit=5"),
        ] {
            assert_eq!(client(base).url(&request()).as_str(), expected);
        }
    }

    #[test]
    fn the_key_is_never_printed() {
        let key = KeyToken::generate();
        let client = HttpClient::new("http://127.0.0.1:1".parse().unwrap(), Some(&key), None).unwrap();
        assert!(!format!("{client:?}").contains(key.reveal().trim_start_matches("prk_")));
    }

    #[test]
    fn what_no_header_takes_is_refused() {
        for text in ["", "a\nb", "ü"] {
            let Err(Failure::Told(problem)) = header_value(text) else {
                panic!("{text} is refused");
            };
            assert_eq!(problem.exit, Exit::Refused);
        }
    }

    #[test]
    fn answers_that_are_no_problem_are_told_by_their_status() {
        let told = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            match client("http://127.0.0.1:1").refused(status, body.as_bytes()) {
                Failure::Told(problem) => (problem.exit.code(), problem.code),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(told(302, "<html>"), (1, "server_redirects".to_owned()));
        assert_eq!(told(401, "<html>"), (6, "answer_unexpected".to_owned()));
        assert_eq!(told(502, ""), (1, "answer_unexpected".to_owned()));
        let problem = serde_json::to_string(&Problem::new(409, "idempotency_conflict", "differs")).unwrap();
        assert_eq!(told(409, &problem), (4, "idempotency_conflict".to_owned()));
    }
}
