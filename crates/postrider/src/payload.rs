//! What a payload must be: one JSON value that every receiver can read, in UTF-8, within bounds.
//!
//! The bytes are kept, signed and sent exactly as they are, so nothing is parsed into values here. Whatever the grammar
//! of JSON allows is taken, also what values could not hold: repeated keys, `1e400`, odd spacing. Refused beyond the
//! grammar is what it allows in letter but what common parsers fail on: half of a surrogate pair, which is no text, and
//! nesting so deep that a recursive parser would exhaust its stack.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// How deeply arrays and objects may be nested. Ruby's parser stops here by default, most others a little later.
pub(crate) const MAX_DEPTH: usize = 100;

/// No refusal quotes the payload; each tells a place in it at most.
fn refuse(code: &'static str, detail: impl Into<String>) -> Refusal {
    Refusal::new(code, "payload", detail)
}

pub(crate) fn check(payload: &[u8], max_bytes: usize) -> Result<(), Refusal> {
    if payload.is_empty() {
        return Err(refuse("payload_empty", "the payload is empty; it must be one JSON value"));
    }
    if payload.len() > max_bytes {
        let detail = format!("the payload has {} bytes, at most {max_bytes} are taken", payload.len());
        return Err(refuse("payload_too_large", detail));
    }
    let text = std::str::from_utf8(payload).map_err(|error| {
        refuse("payload_not_utf8", format!("the payload is not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    if text.starts_with('\u{feff}') {
        let detail = "the payload begins with a byte order mark, which JSON does not allow";
        return Err(refuse("payload_byte_order_mark", detail).hint("encode it as UTF-8 without a byte order mark"));
    }
    check_grammar(text)?;
    check_strings_and_depth(payload)
}

/// Reads over one value without keeping anything of it, and without recursion.
fn check_grammar(text: &str) -> Result<(), Refusal> {
    let mut reader = serde_json::Deserializer::from_str(text);
    // The error's own message may quote the payload, so only its place is told.
    let place = |error: serde_json::Error| format!("line {}, column {}", error.line(), error.column());
    <&RawValue>::deserialize(&mut reader)
        .map_err(|error| refuse("payload_not_json", format!("the payload is not JSON: {}", place(error))))?;
    reader.end().map_err(|error| {
        let detail = format!("the payload is one JSON value, and something follows it: {}", place(error));
        refuse("payload_trailing_data", detail)
    })
}

/// Walks over text that is JSON by its grammar.
fn check_strings_and_depth(json: &[u8]) -> Result<(), Refusal> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' => {
                at += escape_length(&json[at..]).ok_or_else(|| {
                    let detail =
                        format!("the payload has half of a surrogate pair at byte {at}, which is no character");
                    refuse("payload_lone_surrogate", detail)
                })?;
                continue;
            }
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > MAX_DEPTH {
                    let detail = format!("the payload is nested more than {MAX_DEPTH} levels deep at byte {at}");
                    return Err(refuse("payload_too_deep", detail));
                }
            }
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// How many bytes the escape at the beginning of `rest` has, or none when it stands for half of a character.
fn escape_length(rest: &[u8]) -> Option<usize> {
    match code_unit(rest) {
        None => Some(2),
        Some(0xd800..=0xdbff) => matches!(rest.get(6..).and_then(code_unit), Some(0xdc00..=0xdfff)).then_some(12),
        Some(0xdc00..=0xdfff) => None,
        Some(_) => Some(6),
    }
}

/// The number that `\uXXXX` at the beginning of `rest` stands for.
fn code_unit(rest: &[u8]) -> Option<u16> {
    let digits = rest.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
