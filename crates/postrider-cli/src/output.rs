//! What goes to standard output: tables for people, JSON for programs.
//!
//! Text that comes from elsewhere (answers of receivers, URLs, reasons) passes through [`plain`] before a person's
//! terminal sees it, so that no receiver can move the cursor or retitle the window.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Failure;
use postrider::duration;

/// Standard output, and how to write to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// JSON rather than text.
    pub(crate) json: bool,
    colour: bool,
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    /// In a colour.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone: Some(tone) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: None }
    }
}

/// The few colours in use, each with one meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It went well.
    Good,
    /// It will be tried again.
    Waiting,
    /// It went wrong.
    Bad,
    /// Less important.
    Faint,
}

impl Output {
    /// Standard output as the user wants it: colours on a terminal only, and never against `NO_COLOR`.
    pub(crate) fn new(json: bool) -> Self {
        let colour = !json
            && io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { json, colour }
    }

    #[expect(clippy::unused_self, reason = "whoever prints a line has an output to print it to")]
    /// One line, at the reader's disposal at once.
    pub(crate) fn line(self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_ref().as_bytes())?;
        stdout.write_all(b"\n")?;
        Ok(stdout.flush()?)
    }

    /// A value as indented JSON.
    pub(crate) fn document(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string_pretty(value).expect("what is printed is plain data"))
    }

    /// A value as one line of JSON, where more will follow.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string(value).expect("what is printed is plain data"))
    }

    /// Aligned columns under a heading, as wide as they need to be.
    pub(crate) fn table(self, heading: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> Result<(), Failure> {
        let mut lines: Vec<Vec<Cell>> = vec![heading.iter().map(|title| title.to_uppercase().into()).collect()];
        lines.extend(rows);
        let width = |cell: &Cell| cell.text.chars().count();
        let columns = (0..heading.len())
            .map(|column| lines.iter().filter_map(|line| line.get(column)).map(width).max().unwrap_or_default());
        let columns: Vec<usize> = columns.collect();
        for line in &lines {
            let mut text = String::new();
            let last = line.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or_default();
            for (cell, column) in line.iter().zip(&columns).take(last + 1) {
                text.push_str(&cell.tone.map_or_else(|| cell.text.clone(), |tone| self.toned(&cell.text, tone)));
                text.extend(std::iter::repeat_n(' ', column - width(cell) + 2));
            }
            self.line(text.trim_end())?;
        }
        Ok(())
    }

    /// Names with their values, one per line, the values under each other.
    pub(crate) fn facts(self, facts: &[(&str, String)]) -> Result<(), Failure> {
        let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default().max(14) + 2;
        facts.iter().try_for_each(|(name, value)| self.line(format!("{name:<width$}{value}").trim_end()))
    }

    /// A paragraph, broken between words so that it fits.
    pub(crate) fn paragraph(self, text: &str) -> Result<(), Failure> {
        wrap(text, width()).iter().try_for_each(|line| self.line(line))
    }

    /// One of several sentences, broken between words and indented behind a dash.
    pub(crate) fn item(self, text: &str) -> Result<(), Failure> {
        let lines = wrap(text, width().saturating_sub(2));
        let marks = std::iter::once("- ").chain(std::iter::repeat("  "));
        lines.iter().zip(marks).try_for_each(|(line, mark)| self.line(format!("{mark}{line}")))
    }

    /// The text in a colour, where colours are wanted.
    pub(crate) fn toned(self, text: &str, tone: Tone) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Waiting => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// How many characters a line of standard output takes.
fn width() -> usize {
    const USUAL: usize = 100;
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    // Longer lines are hard to read, however wide the window.
    columns().or_else(terminal).unwrap_or(USUAL).clamp(20, USUAL)
}

/// The lines of a text, each as long as it may be. A word that is longer than a line has one of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Whether standard output and the log, which goes to standard error, are read in one place.
pub(crate) fn is_beside_the_log() -> bool {
    io::stdout().is_terminal() && io::stderr().is_terminal()
}

/// Text on standard error that is no error: what a person should know beside what was asked for.
pub(crate) fn note(text: &str) {
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The text without anything that a terminal would obey, cut to `limit` characters.
pub(crate) fn plain(text: &str, limit: usize) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == limit {
            shown.push('…');
            break;
        }
        let invisible = character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if invisible {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// An instant as seen from `now`: `in 25s`, `3m ago`.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let difference = at.duration_since(now);
    let distance = Duration::try_from(difference.abs()).unwrap_or_default();
    if distance < Duration::from_millis(1) {
        "now".to_owned()
    } else if difference.is_negative() {
        format!("{} ago", duration::about(distance))
    } else {
        format!("in {}", duration::about(distance))
    }
}

/// An instant both ways: `2026-02-21 12:00:00Z (3m ago)`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", instant(at), relative(at, now))
}

/// An instant to the second.
pub(crate) fn instant(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal() {
        let shown = plain("a\u{1b}[2Jb\r\nc\u{202e}d\u{9b}e", 100);
        assert!(shown.chars().all(|character| !character.is_control() && character != '\u{202e}'), "{shown}");
        assert!(shown.starts_with('a') && shown.ends_with('e'));
        assert_eq!(plain("abcdef", 3), "abc…");
        assert_eq!(plain("abc", 3), "abc");
    }

    #[test]
    fn paragraphs_are_broken_between_words() {
        assert_eq!(wrap("one two  three\nfour", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("a averyverylongword b", 5), ["a", "averyverylongword", "b"]);
        assert_eq!(wrap("", 5), [""; 0]);
    }

    #[test]
    fn instants_are_told_from_now() {
        let now: Timestamp = "2026-02-21T12:00:00Z".parse().unwrap();
        for (at, text) in [
            ("2026-02-21T12:00:25Z", "in 25s"),
            ("2026-02-21T11:57:00Z", "3m ago"),
            ("2026-02-21T12:00:00Z", "now"),
            ("2026-02-19T12:00:00Z", "2d ago"),
        ] {
            assert_eq!(relative(at.parse().unwrap(), now), text);
        }
    }
}
