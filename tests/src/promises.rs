//! The document that says which test tries which promise, and the guards that mutations take away.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::files::TextFile;

/// How many promises there are, counted from 1.
pub const COUNT: u32 = 26;

/// A promise as the document has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Promise {
    /// Of `## P7: …`.
    pub number: u32,
    /// Of each `path::test` in its part: the file, and the test in it.
    pub tests: Vec<(String, String)>,
}

/// The promises of a document, each from its heading to the next one.
pub fn promises(document: &str) -> Vec<Promise> {
    let mut promises: Vec<Promise> = Vec::new();
    let mut is_within = false;
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let number = heading.strip_prefix('P').and_then(|rest| rest.split(':').next()?.parse().ok());
            promises.extend(number.map(|number| Promise { number, tests: Vec::new() }));
            is_within = number.is_some();
        } else if is_within && let Some(promise) = promises.last_mut() {
            promise.tests.extend(named_tests(line));
        }
    }
    promises
}

/// What stands between backticks in the form `path/to/file.rs::name_of_test`.
pub fn named_tests(text: &str) -> impl Iterator<Item = (String, String)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|name| name.split_once(".rs::").map(|(path, test)| (format!("{path}.rs"), test.to_owned())))
}

/// Each promise is there once, in order, with at least one test.
pub fn completeness_complaints(promises: &[Promise]) -> Vec<String> {
    let mut complaints = Vec::new();
    let numbers: Vec<u32> = promises.iter().map(|promise| promise.number).collect();
    if numbers != (1..=COUNT).collect::<Vec<_>>() {
        complaints.push(format!("the document has the promises {numbers:?}, and not P1 to P{COUNT} in order"));
    }
    let untested = promises.iter().filter(|promise| promise.tests.is_empty());
    complaints.extend(untested.map(|promise| format!("no test is named for P{}", promise.number)));
    complaints
}

/// Each test that is named anywhere in the document is a function of the file that is named with it.
pub fn existence_complaints(document: &str, files: &[TextFile]) -> Vec<String> {
    let complaint = |(path, test): (String, String)| {
        let Some(file) = files.iter().find(|file| file.path == path) else {
            return Some(format!("{path}, which is to have {test}, is not there"));
        };
        (!file.text.contains(&format!("fn {test}("))).then(|| format!("{path} has no {test}"))
    };
    document.lines().flat_map(named_tests).filter_map(complaint).collect()
}

/// The promises that the comments of a test speak of.
pub fn mentioned(file: &TextFile) -> BTreeSet<u32> {
    let comments = file.text.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
    let words = comments.flat_map(|line| line.split(|sign: char| !sign.is_ascii_alphanumeric()));
    words.filter_map(|word| word.strip_prefix('P')?.parse().ok()).collect()
}

/// A test does not speak of a promise that there is not.
pub fn mention_complaints(promises: &[Promise], files: &[TextFile]) -> Vec<String> {
    let known: BTreeSet<u32> = promises.iter().map(|promise| promise.number).collect();
    let unknown = |file: &TextFile| {
        let path = file.path.clone();
        let strange: Vec<u32> = mentioned(file).difference(&known).copied().collect();
        strange.into_iter().map(move |number| format!("{path} speaks of P{number}, which nobody has promised"))
    };
    files.iter().flat_map(unknown).collect()
}

/// The guards that `scripts/mutations` takes away.
#[derive(Debug, Deserialize)]
pub struct Mutations {
    /// Each of them.
    pub mutation: Vec<Mutation>,
}

/// A guard, and how it is taken away.
#[derive(Debug, Deserialize)]
pub struct Mutation {
    /// What it is called.
    pub name: String,
    /// What it guards, such as `P4`.
    pub promise: String,
    /// Where it stands.
    pub replace: Vec<Replacement>,
}

/// A text that is replaced by another.
#[derive(Debug, Deserialize)]
pub struct Replacement {
    /// Where.
    pub file: String,
    /// What stands there once, however it is spaced.
    pub before: String,
}

/// Each text that is to be replaced is there once, for a promise that there is, under a name of its own.
pub fn mutation_complaints(mutations: &Mutations, promises: &[Promise], files: &[TextFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut names = BTreeSet::new();
    for Mutation { name, promise, replace } in &mutations.mutation {
        if !names.insert(name) {
            complaints.push(format!("two mutations are called {name}"));
        }
        if !promises.iter().any(|known| format!("P{}", known.number) == *promise) {
            complaints.push(format!("{name} is about {promise}, which nobody has promised"));
        }
        for Replacement { file, before } in replace {
            let text = files.iter().find(|known| known.path == *file).map(|known| spaced_once(&known.text));
            match text.map(|text| text.matches(&spaced_once(before)).count()) {
                Some(1) => {}
                Some(count) => complaints.push(format!("{name}: {file} has {count} times: {before}")),
                None => complaints.push(format!("{name}: {file} is not there")),
            }
        }
    }
    complaints
}

fn spaced_once(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Promises\n\n## P1: Nothing is lost.\n\n| `tests/a.rs::kept` | once |\n`tests/b.rs::gone`\n\n\
        ## P2: Nothing is doubled.\n\n`not a test`\n\n## Bodies\n\n`tests/a.rs::odd`\n";

    #[test]
    fn promises_are_read_with_their_tests() {
        let test = |path: &str, name: &str| (path.to_owned(), name.to_owned());
        let first = Promise { number: 1, tests: vec![test("tests/a.rs", "kept"), test("tests/b.rs", "gone")] };
        assert_eq!(promises(DOCUMENT), [first, Promise { number: 2, tests: Vec::new() }]);
    }

    #[test]
    fn a_promise_without_a_test_and_a_missing_one_are_found() {
        let complaints = completeness_complaints(&promises(DOCUMENT));
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("[1, 2]"), "{complaints:?}");
        assert_eq!(complaints[1], "no test is named for P2");
    }

    #[test]
    fn a_test_that_is_not_there_is_found_in_every_part_of_the_document() {
        let files = [TextFile::new("tests/a.rs", "async fn kept() {}\nfn odder() {}")];
        assert_eq!(
            existence_complaints(DOCUMENT, &files),
            ["tests/b.rs, which is to have gone, is not there", "tests/a.rs has no odd"]
        );
    }

    #[test]
    fn a_promise_that_nobody_made_is_found() {
        let file = TextFile::new("tests/a.rs", "/// P1, P30: both.\n#[test]\nfn a() { let P40 = 1; }\n//! P2\n");
        assert_eq!(mentioned(&file), BTreeSet::from([1, 2, 30]));
        let complaints = mention_complaints(&promises(DOCUMENT), &[file]);
        assert_eq!(complaints, ["tests/a.rs speaks of P30, which nobody has promised"]);
    }

    #[test]
    fn a_mutation_whose_text_is_gone_or_stands_there_twice_is_found() {
        let files = [TextFile::new("a.sql", "where a = 1\n  and b = 2\nor c\nor c")];
        let check = |name: &str, promise: &str, file: &str, before: &str| {
            let replacement = Replacement { file: file.to_owned(), before: before.to_owned() };
            let mutation = Mutation { name: name.to_owned(), promise: promise.to_owned(), replace: vec![replacement] };
            mutation_complaints(&Mutations { mutation: vec![mutation] }, &promises(DOCUMENT), &files)
        };
        assert!(check("a", "P1", "a.sql", "a = 1 and b").is_empty());
        assert_eq!(check("a", "P1", "a.sql", "or c"), ["a: a.sql has 2 times: or c"]);
        assert_eq!(check("a", "P1", "a.sql", "b = 3"), ["a: a.sql has 0 times: b = 3"]);
        assert_eq!(check("a", "P1", "b.sql", "b = 3"), ["a: b.sql is not there"]);
        assert_eq!(check("a", "P9", "a.sql", "a = 1"), ["a is about P9, which nobody has promised"]);
    }
}
