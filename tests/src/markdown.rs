//! Links between the documents.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::files::TextFile;

/// Relative links must lead to a file or folder that is there, and those into a document to a heading that it has.
/// Addresses elsewhere are not followed.
pub fn link_complaints(documents: &[&TextFile], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let headings: HashMap<PathBuf, Vec<String>> =
        documents.iter().map(|document| (PathBuf::from(&document.path), anchors(&document.text))).collect();
    let mut complaints = Vec::new();
    for document in documents {
        let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        let targets = targets(&document.text).into_iter();
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { PathBuf::from(&document.path) } else { without_dots(&folder.join(file)) };
            if !file.is_empty() && !exists(&path) {
                complaints.push(format!("{} links to {target}, which is not there", document.path));
            } else if !anchor.is_empty()
                && headings.get(&path).is_some_and(|headings| !headings.iter().any(|heading| heading == anchor))
            {
                complaints.push(format!("{} links to {target}, and there is no such heading", document.path));
            }
        }
    }
    complaints
}

/// The path without `.` and `..`, so that it can be looked up.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The lines of a document outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The targets of `[text](target)` and of `[name]: target`.
fn targets(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for line in prose(text) {
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        targets.extend(inline.chain(reference).map(|target| target.trim_matches(['<', '>'])));
    }
    targets
}

/// What the headings of a document are called in links: their words in lower case, joined by hyphens, without other signs.
/// A heading that is there again gets a number.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in prose(text) {
        let Some((marks, heading)) = line.split_once(' ') else { continue };
        if !(1..=6).contains(&marks.len()) || marks.bytes().any(|mark| mark != b'#') {
            continue;
        }
        // Of a link in a heading, only its text counts.
        let shown = heading.split("](").enumerate().map(|(index, part)| match part.split_once(')') {
            Some((_, rest)) if index > 0 => rest,
            _ => part,
        });
        let kept = |sign: char| match sign {
            ' ' => Some('-'),
            '-' | '_' => Some(sign),
            sign => sign.is_alphanumeric().then_some(sign),
        };
        let name: String = shown.collect::<String>().trim().to_lowercase().chars().filter_map(kept).collect();
        let same = found.iter().filter(|earlier| **earlier == name).count();
        found.push(if same == 0 { name } else { format!("{name}-{same}") });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_nothing_is_found() {
        let text = "See [one](there.md#part), [two](gone.md) and [far](https://example.com/gone.md), [here](#part).\n\
            ```\n[code](ignored.md)\n```\n[name]: ../also-gone.md\n[![badge](gone.svg)](there.md)\n# Part\n";
        let document = TextFile::new("docs/guide.md", text);
        let complaints = link_complaints(&[&document], |path| path == Path::new("docs/there.md"));
        assert_eq!(
            complaints,
            [
                "docs/guide.md links to gone.md, which is not there",
                "docs/guide.md links to ../also-gone.md, which is not there",
                "docs/guide.md links to gone.svg, which is not there",
            ]
        );
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_found() {
        let one = TextFile::new(
            "docs/one.md",
            "[a](#there) [b](#gone) [c](../two.md#two-words) [d](../two.md#there)\n## There\n",
        );
        let two =
            TextFile::new("two.md", "# Two `words`!\n```\n# There\n```\n[e](docs/one.md#there) [f](image.svg#there)\n");
        let complaints = link_complaints(&[&one, &two], |_| true);
        assert_eq!(
            complaints,
            [
                "docs/one.md links to #gone, and there is no such heading",
                "docs/one.md links to ../two.md#there, and there is no such heading",
            ]
        );
    }

    #[test]
    fn headings_are_called_by_their_words() {
        let text = "# It's `a_b`, twice\n## [Link](there.md): more\n## Same\n### Same\n#no\n####### no\n";
        assert_eq!(anchors(text), ["its-a_b-twice", "link-more", "same", "same-1"]);
    }
}
