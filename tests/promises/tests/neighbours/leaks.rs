//! What must not be shown, and where it is looked for (P20).
//!
//! Every secret of these tests contains the word below in clear, or begins with it in base64. Nothing else does: neither
//! names, nor types, nor descriptions. So there is one thing to search for, and it is found in hexadecimal as well.

use postrider_promises::canary;

/// Signs for an endpoint; 32 bytes in base64.
pub(crate) const ENDPOINT_SECRET: &str = "whsec_Y2FuYXJ5LW9mLWFuLWVuZHBvaW50LTAxMjM0NTY3ODk=";
/// Takes its place.
pub(crate) const NEXT_SECRET: &str = "whsec_Y2FuYXJ5LXRoYXQtY29tZXMtbmV4dC0wMTIzNDU2Nzg=";
/// Is sent along to a receiver.
pub(crate) const HEADER: &str = "canary-of-a-header-5b1d";
/// Opens a database.
pub(crate) const PASSWORD: &str = "canary-of-a-database-93ab";
/// Looks like an API key, and is none.
pub(crate) const WRONG_KEY: &str = "prk_canary-of-a-key-2c77";

const SIGNS: [&str; 3] = ["canary", "Y2FuYXJ5", "63616e617279"];

/// A payload.
pub(crate) fn payload() -> String {
    format!(r#"{{"x":"{}"}}"#, canary::PAYLOAD)
}

/// The places in a text where something is shown that must not be, with what is around them.
pub(crate) fn leaks(text: &str) -> Vec<String> {
    let around = |place: usize| {
        let start = text.floor_char_boundary(place.saturating_sub(120));
        let end = text.ceil_char_boundary((place + 60).min(text.len()));
        text[start..end].to_owned()
    };
    SIGNS.iter().flat_map(|sign| text.match_indices(sign)).map(|(place, _)| around(place)).collect()
}

/// A text as a dump writes bytes.
pub(crate) fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut digits, byte| {
        digits.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
        digits
    })
}

/// Fails if something is shown.
#[track_caller]
pub(crate) fn must_not_leak(what: &str, text: &str) {
    let found = leaks(text);
    assert!(found.is_empty(), "{what} shows what it must not, {} times, first in: {}", found.len(), found[0]);
}

#[test]
fn every_canary_is_found_however_it_is_written() {
    for secret in [ENDPOINT_SECRET, NEXT_SECRET, HEADER, PASSWORD, WRONG_KEY, canary::PAYLOAD] {
        assert_eq!(leaks(&format!("and {secret} too")).len(), 1, "{secret}");
    }
    for secret in [HEADER, PASSWORD, canary::PAYLOAD, "canary-of-an-endpoint-0123456789"] {
        assert_eq!(leaks(&hexadecimal(secret)).len(), 1, "{secret}");
    }
    for secret in [canary::SECRET_KEY, canary::SIGNING_SECRET] {
        assert_eq!(leaks(secret).len(), 1, "{secret}");
    }
    assert!(leaks("nothing of interest").is_empty());
}
