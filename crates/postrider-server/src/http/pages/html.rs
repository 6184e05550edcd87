//! Text as HTML.

/// With everything escaped that means something in HTML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// One line, in which what stands between backticks is code.
pub(super) fn line(text: &str) -> String {
    let mut html = String::new();
    for (at, part) in text.split('`').enumerate() {
        let part = escape(part);
        let (before, after) = if at % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        html.extend([before, &part, after]);
    }
    html
}

/// Paragraphs, which blank lines separate.
pub(super) fn paragraphs(text: &str) -> String {
    let mut html = String::new();
    for paragraph in text.split("\n\n") {
        html.extend(["<p>", &line(paragraph.trim()), "</p>\n"]);
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_taken_for_html() {
        assert_eq!(line("a `<b>` & 'c'"), "a <code>&lt;b&gt;</code> &amp; &#39;c&#39;");
        assert_eq!(paragraphs("one\n\ntwo"), "<p>one</p>\n<p>two</p>\n");
    }
}
