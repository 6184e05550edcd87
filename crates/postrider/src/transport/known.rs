//! URLs that the policy has accepted, so that the same few are not parsed and examined for every post.
//!
//! Only what was accepted is remembered, and only the URL's text was examined for it: the addresses that a name leads to
//! are vetted at each dial, whatever is remembered here.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use http::Uri;

/// How many are remembered: more than the destinations that a dispatcher has in flight by far.
const MAX_KNOWN: usize = 4096;

/// Longer ones are examined again, so that what is remembered stays small.
const MAX_LENGTH: usize = 512;

#[derive(Debug, Default)]
pub(super) struct KnownUrls(RwLock<HashMap<String, Uri>>);

impl KnownUrls {
    pub(super) fn get(&self, url: &str) -> Option<Uri> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(url).cloned()
    }

    pub(super) fn add(&self, url: &str, uri: &Uri) {
        if url.len() > MAX_LENGTH {
            return;
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(url.to_owned(), uri.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded() {
        let known = KnownUrls::default();
        let uri = Uri::from_static("http://example.com/");
        for number in 0..=MAX_KNOWN {
            known.add(&format!("http://example.com/{number}"), &uri);
        }
        assert!(known.0.read().unwrap().len() <= MAX_KNOWN);
        assert_eq!(known.get(&format!("http://example.com/{MAX_KNOWN}")), Some(uri.clone()));
        let long = format!("http://example.com/{}", "x".repeat(MAX_LENGTH));
        known.add(&long, &uri);
        assert_eq!(known.get(&long), None);
    }
}
