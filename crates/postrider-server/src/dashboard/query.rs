//! What a form or a query brings: names with values, in order, any of them left out.

use axum::extract::FromRequestParts;
use http::request::Parts;
use url::form_urlencoded;

use crate::api::Problem;
use crate::http::AppState;

/// More names than any form here has.
const MOST_FIELDS: usize = 1_000;

/// Names with values.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes).take(MOST_FIELDS);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The first value of this name as it was typed; empty when there is none.
    pub(super) fn raw(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// The same without the blanks around it.
    pub(super) fn text(&self, name: &str) -> &str {
        self.raw(name).trim()
    }

    /// The same; none when nothing was typed.
    pub(super) fn given(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// Every value of this name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.trim())
    }

    /// A number; none when nothing was typed.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u32>, Problem> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let shown: String = text.chars().take(32).flat_map(char::escape_default).collect();
            Problem::new(422, "number_invalid", format!("`{shown}` is not a whole number")).about(name)
        })
    }

    /// The lines of a text, without empty ones.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let lines = self.raw(name).lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// A link to `path` with the fields of these names, and what is added to them.
    pub(super) fn link(&self, path: &str, names: &[&str], added: &[(&str, &str)]) -> String {
        let kept = names.iter().map(|name| (*name, self.text(name)));
        link(path, kept.chain(added.iter().copied()))
    }
}

impl<const N: usize> From<[(&str, String); N]> for Fields {
    fn from(pairs: [(&str, String); N]) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// A link to `path` with these values, but for empty ones.
pub(super) fn link<'a>(path: &str, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in values.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// A query, of which unknown names are ignored: people change addresses by hand.
pub(super) struct Query(pub(super) Fields);

impl FromRequestParts<AppState> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        Ok(Self(Fields::parse(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let fields = Fields::parse(b"id=a&id=b&text=+x%0D%0A%0D%0Ay+&count=7&bad=x");
        assert_eq!(fields.all("id").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((fields.text("text"), fields.text("none")), ("x\r\n\r\ny", ""));
        assert_eq!(fields.lines("text"), ["x", "y"]);
        assert_eq!((fields.number("count"), fields.number("none")), (Ok(Some(7)), Ok(None)));
        assert_eq!(fields.number("bad").unwrap_err().errors[0].field, "bad");
    }

    #[test]
    fn links_keep_what_is_named() {
        let fields = Fields::parse(b"status=dead&cursor=old&event_type=&x=y");
        let next = fields.link("/deliveries", &["status", "event_type"], &[("cursor", "a&b")]);
        assert_eq!(next, "/deliveries?status=dead&cursor=a%26b");
        assert_eq!(fields.link("/deliveries", &[], &[]), "/deliveries");
    }
}
