//! JSON for people: indented and coloured, but with every number and text as it was written. Parsing and printing it again
//! would show something else than what receivers get.

use maud::{Markup, html};

/// What is shown of a payload at most; coloured text takes far more room than its bytes.
const MOST_BYTES: usize = 64 * 1024;

/// A payload, or the beginning of a very large one.
pub(super) fn show(text: &str) -> Markup {
    let cut = text.len() > MOST_BYTES;
    let end = (0..=MOST_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    html! {
        pre.json tabindex="0" { code { @for piece in pieces(&text[..end]) { (piece.show()) } } }
        @if cut { p.fineprint { "This is the beginning of " (super::time::number(text.len() as u64)) " bytes." } }
    }
}

/// A part of JSON with a colour of its own.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Key(&'a str),
    Text(&'a str),
    /// Numbers, true, false and null.
    Word(&'a str),
    /// Brackets and commas, with the line breaks that make them readable.
    Structure(String),
}

impl Piece<'_> {
    fn show(&self) -> Markup {
        match self {
            Self::Key(text) => html! { span.key { (text) } },
            Self::Text(text) => html! { span.text { (text) } },
            Self::Word(text) => html! { span.word { (text) } },
            Self::Structure(text) => html! { (text) },
        }
    }
}

/// Reads what is JSON, and shows what is not as it is.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => at += 1,
            b'"' => {
                let end = end_of_text(bytes, at);
                let is_key = bytes[end..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':');
                pieces.push(if is_key { Piece::Key(&text[at..end]) } else { Piece::Text(&text[at..end]) });
                at = end;
            }
            open @ (b'{' | b'[') => {
                let inner = bytes[at + 1..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|it| at + 1 + it);
                if let Some(close) = inner.filter(|close| matches!((open, bytes[*close]), (b'{', b'}') | (b'[', b']')))
                {
                    pieces.push(Piece::Structure(format!("{}{}", char::from(open), char::from(bytes[close]))));
                    at = close + 1;
                    continue;
                }
                depth += 1;
                pieces.push(Piece::Structure(format!("{}{}", char::from(open), break_line(depth))));
                at += 1;
            }
            close @ (b'}' | b']') => {
                depth = depth.saturating_sub(1);
                pieces.push(Piece::Structure(format!("{}{}", break_line(depth), char::from(close))));
                at += 1;
            }
            b',' => {
                pieces.push(Piece::Structure(format!(",{}", break_line(depth))));
                at += 1;
            }
            b':' => {
                pieces.push(Piece::Structure(": ".to_owned()));
                at += 1;
            }
            _ => {
                let ends = |byte: &u8| b" \t\r\n,:{}[]\"".contains(byte);
                let end = bytes[at..].iter().position(ends).map_or(bytes.len(), |length| at + length);
                pieces.push(Piece::Word(&text[at..end]));
                at = end;
            }
        }
    }
    pieces
}

/// After the closing quote, or at the end.
fn end_of_text(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn break_line(depth: usize) -> String {
    // Deeper than this it would only run out of the page.
    format!("\n{}", "  ".repeat(depth.min(32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        let piece = |piece: &Piece<'_>| match piece {
            Piece::Key(text) | Piece::Text(text) | Piece::Word(text) => (*text).to_owned(),
            Piece::Structure(text) => text.clone(),
        };
        pieces(text).iter().map(piece).collect()
    }

    #[test]
    fn it_is_indented_and_nothing_is_rewritten() {
        let text = r#"{"b":1.50,"a" : [ 1e400,"x\"y:,{" ],"n":null,"e":{},"f":[ ]}"#;
        let expected = "{\n  \"b\": 1.50,\n  \"a\": [\n    1e400,\n    \"x\\\"y:,{\"\n  ],\n  \"n\": null,\n  \"e\": {},\n  \"f\": []\n}";
        assert_eq!(plain(text), expected);
        assert_eq!(pieces(r#"{"k":"v"}"#)[1], Piece::Key("\"k\""));
        assert_eq!(pieces(r#"{"k":"v"}"#)[3], Piece::Text("\"v\""));
    }

    #[test]
    fn whatever_it_is_it_is_escaped_and_ends() {
        for text in [
            "",
            "\"",
            "\"\\",
            "\"ä\\",
            "]]]]",
            "{",
            "[[",
            "<script>alert(1)</script>",
            "\u{1f600}",
            "{\"a\":\"</code><b>\"}",
        ] {
            let shown = show(text).0;
            assert!(!shown.contains("<script") && !shown.contains("<b>"), "{shown}");
        }
        assert!(show(&"ä".repeat(MOST_BYTES)).0.contains("131,072 bytes"));
        assert!(show(&"[".repeat(MOST_BYTES)).0.len() < 10_000_000);
    }
}
