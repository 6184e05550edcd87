//! Headers that an endpoint wants with every attempt.
//!
//! Whoever may name a header writes into our request. A line break in one would begin the next header or the body; some
//! names say how long the request is, where it goes or what becomes of the connection; and some prove to the receiver
//! who sent it. None of those can be had. What is left over is kept in lower case, since names mean the same in any.

use http::HeaderName;

use crate::refusal::Refusal;
use crate::signature::SignatureScheme;

/// The most headers that an endpoint may have.
pub const MAX_HEADERS: usize = 32;

/// The longest name.
pub const MAX_NAME_BYTES: usize = 128;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 4_096;

/// All names and values together: receivers refuse requests whose head is larger than a few pages.
pub const MAX_TOTAL_BYTES: usize = 16_384;

/// What is shown in the place of a credential.
pub const MASK: &str = "****";

const FIELD: &str = "headers";

/// Names that belong to the connection, to the message's framing, or to what every attempt says about itself.
const RESERVED: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Beginnings of names that proxies act on, or that are ours.
const RESERVED_PREFIXES: [&str; 3] = ["proxy-", "webhook-", "postrider-"];

/// Parts of names whose values open something.
const CREDENTIALS: [&str; 7] = ["auth", "cookie", "key", "password", "secret", "signature", "token"];

/// Checks an endpoint's own headers, and returns them as they are kept. The scheme is the one that signs for the endpoint.
///
/// ```
/// use postrider::headers;
///
/// let kept = headers::check([("X-Team", "billing")], None)?;
/// assert_eq!(kept, [("x-team".to_owned(), "billing".to_owned())]);
/// assert_eq!(headers::check([("Host", "elsewhere")], None).unwrap_err().code, "header_reserved");
/// # Ok::<(), postrider::Refusal>(())
/// ```
pub fn check<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    signature: Option<&SignatureScheme>,
) -> Result<Vec<(String, String)>, Refusal> {
    let signatures_own = signature.map(SignatureScheme::header_names).unwrap_or_default();
    let mut kept: Vec<(String, String)> = Vec::new();
    let mut total = 0;
    for (name, value) in headers {
        let name = check_name(name, &signatures_own)?;
        check_value(&name, value)?;
        if kept.iter().any(|(other, _)| *other == name) {
            return Err(Refusal::new("header_duplicate", FIELD, format!("the header `{name}` is there twice")));
        }
        total += name.len() + value.len();
        kept.push((name, value.to_owned()));
        if kept.len() > MAX_HEADERS {
            let detail = format!("there are more than {MAX_HEADERS} headers");
            return Err(Refusal::new("headers_too_many", FIELD, detail));
        }
    }
    if total > MAX_TOTAL_BYTES {
        let detail = format!("the headers have {total} bytes together, at most {MAX_TOTAL_BYTES} are taken");
        return Err(Refusal::new("headers_too_large", FIELD, detail));
    }
    Ok(kept)
}

/// Whether a header's value is likely to open something, and is not to be shown.
pub fn carries_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

fn check_name(name: &str, signatures_own: &[HeaderName]) -> Result<String, Refusal> {
    let shown: String = name.chars().take(64).flat_map(char::escape_default).collect();
    let parsed = (name.len() <= MAX_NAME_BYTES).then(|| name.parse::<HeaderName>().ok()).flatten();
    let Some(parsed) = parsed else {
        return Err(Refusal::new("header_name_invalid", FIELD, format!("`{shown}` is not the name of a header"))
            .hint(format!("use 1 to {MAX_NAME_BYTES} letters, digits and hyphens, such as `x-team`")));
    };
    let name = parsed.as_str();
    let reserved = RESERVED.contains(&name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || signatures_own.contains(&parsed);
    if reserved {
        return Err(Refusal::new(
            "header_reserved",
            FIELD,
            format!("the header `{name}` is not the endpoint's to set"),
        )
        .hint("choose a name of your own, such as `x-team`"));
    }
    Ok(name.to_owned())
}

/// The value is not repeated: it may be a credential.
fn check_value(name: &str, value: &str) -> Result<(), Refusal> {
    let refuse = |code, detail: String| Err(Refusal::new(code, FIELD, detail));
    if value.len() > MAX_VALUE_BYTES {
        let detail = format!("the header `{name}` has {} bytes, at most {MAX_VALUE_BYTES} are taken", value.len());
        return refuse("header_value_too_long", detail);
    }
    if !value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) || value.trim() != value {
        let detail =
            format!("the value of the header `{name}` is not one line of printable ASCII without spaces around it");
        return refuse("header_value_invalid", detail);
    }
    if value == MASK {
        let detail = format!("the value of the header `{name}` is the mask that is shown in the place of a credential");
        return refuse("header_value_masked", detail);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, value: &str) -> &'static str {
        check([(name, value)], None).unwrap_err().code
    }

    #[test]
    fn names_that_are_no_names_are_refused() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", " ", "x team", "x:team", "x-team:", "x\r\nhost", "x\n", "x\0", "über", "x-team ", "(x)", &long]
        {
            assert_eq!(refused(name, "value"), "header_name_invalid", "{name:?}");
        }
    }

    #[test]
    fn names_that_are_not_the_endpoints_are_refused_in_any_case() {
        for name in RESERVED {
            assert_eq!(refused(name, "value"), "header_reserved", "{name}");
            assert_eq!(refused(&name.to_ascii_uppercase(), "value"), "header_reserved", "{name}");
        }
        for name in ["Proxy-Authorization", "proxy-connection", "Webhook-Id", "webhook-signature", "Postrider-Attempt"]
        {
            assert_eq!(refused(name, "value"), "header_reserved", "{name}");
        }
    }

    #[test]
    fn the_signatures_own_headers_are_refused() {
        let scheme = SignatureScheme::from_parts("hmac-sha256-hex", Some("X-Acme-"), None).unwrap();
        for name in ["x-acme-signature", "X-Acme-Timestamp", "x-acme-event-id", "x-acme-event-type"] {
            assert_eq!(check([(name, "value")], Some(&scheme)).unwrap_err().code, "header_reserved", "{name}");
            assert!(check([(name, "value")], None).is_ok(), "{name}");
        }
        assert!(check([("x-acme-team", "billing")], Some(&scheme)).is_ok());
    }

    #[test]
    fn values_that_are_more_than_one_line_are_refused_without_repeating_them() {
        let long = "v".repeat(MAX_VALUE_BYTES + 1);
        for (value, code) in [
            ("canary\r\nhost: elsewhere", "header_value_invalid"),
            ("canary\n", "header_value_invalid"),
            ("canary\0", "header_value_invalid"),
            ("canary\t", "header_value_invalid"),
            (" canary", "header_value_invalid"),
            ("canary ", "header_value_invalid"),
            ("canary\u{7f}", "header_value_invalid"),
            ("canäry", "header_value_invalid"),
            ("****", "header_value_masked"),
            (&long, "header_value_too_long"),
        ] {
            let refusal = check([("x-team", value)], None).unwrap_err();
            assert_eq!(refusal.code, code, "{value:?}");
            assert!(!refusal.to_string().contains("canary"), "{refusal}");
        }
    }

    #[test]
    fn there_is_a_limit_on_everything() {
        let names: Vec<String> = (0..=MAX_HEADERS).map(|n| format!("x-{n}")).collect();
        let headers = |count: usize, value: &'static str| {
            let headers: Vec<(&str, &str)> = names.iter().take(count).map(|name| (name.as_str(), value)).collect();
            check(headers, None).map(|kept| kept.len()).map_err(|refusal| refusal.code)
        };
        assert_eq!(headers(MAX_HEADERS, "value"), Ok(MAX_HEADERS));
        assert_eq!(headers(MAX_HEADERS + 1, "value"), Err("headers_too_many"));
        let value: &'static str = Box::leak("v".repeat(MAX_VALUE_BYTES).into_boxed_str());
        assert_eq!(headers(1, value), Ok(1));
        assert_eq!(headers(5, value), Err("headers_too_large"));
        assert_eq!(check([("x-team", "a"), ("X-Team", "b")], None).unwrap_err().code, "header_duplicate");
    }

    #[test]
    fn what_is_left_over_is_kept_in_lower_case() {
        let kept = check([("Authorization", "Bearer abc"), ("X-Empty", "")], None).unwrap();
        assert_eq!(kept, [("authorization".into(), "Bearer abc".into()), ("x-empty".into(), String::new())]);
    }

    #[test]
    fn credentials_are_known_by_their_names() {
        for name in ["Authorization", "cookie", "X-Api-Key", "x-auth", "X-Access-Token", "client-secret"] {
            assert!(carries_credential(name), "{name}");
        }
        for name in ["x-team", "accept", "x-region"] {
            assert!(!carries_credential(name), "{name}");
        }
    }
}
