//! Links between the documents.

use std::path::Path;

use crate::files::TextFile;

/// Relative links must lead to a file or folder that is there. Addresses elsewhere and anchors are not followed.
pub fn link_complaints(document: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    targets(&document.text)
        .into_iter()
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.starts_with('#'))
        .filter_map(|target| {
            let file = target.split('#').next().unwrap_or(target);
            (!exists(&folder.join(file))).then(|| format!("{} links to {target}, which is not there", document.path))
        })
        .collect()
}

/// The targets of `[text](target)` and of `[name]: target`, outside of fenced code.
fn targets(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        let reference = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target.trim());
        targets.extend(inline.chain(reference).map(|target| target.trim_matches(['<', '>'])));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_nothing_is_found() {
        let text = "See [one](there.md#part), [two](gone.md) and [far](https://example.com/gone.md), [here](#part).\n\
            ```\n[code](ignored.md)\n```\n[name]: ../also-gone.md\n[![badge](gone.svg)](there.md)\n";
        let document = TextFile::new("docs/guide.md", text);
        let complaints = link_complaints(&document, |path| path == Path::new("docs/there.md"));
        assert_eq!(
            complaints,
            [
                "docs/guide.md links to gone.md, which is not there",
                "docs/guide.md links to ../also-gone.md, which is not there",
                "docs/guide.md links to gone.svg, which is not there",
            ]
        );
    }
}
