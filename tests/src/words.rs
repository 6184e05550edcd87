//! Words that have no place somewhere.

use crate::files::TextFile;

/// A place where a forbidden phrase is meant, and why.
#[derive(Debug)]
pub struct Exception {
    /// The file.
    pub path: &'static str,
    /// The phrase that is allowed there.
    pub phrase: &'static str,
    /// What makes it right.
    pub reason: &'static str,
}

/// Each occurrence of a forbidden phrase is a complaint, and so is an exception that nothing needs. Innocent phrases
/// are looked past: they contain a forbidden word and mean something else.
pub fn complaints(files: &[TextFile], forbidden: &[&str], innocent: &[&str], exceptions: &[Exception]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut needed = vec![false; exceptions.len()];
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let line = innocent.iter().fold(line.to_lowercase(), |line, phrase| line.replace(phrase, "…"));
            for phrase in forbidden.iter().filter(|phrase| contains(&line, phrase)) {
                match exceptions.iter().position(|one| one.path == file.path && one.phrase == *phrase) {
                    Some(exception) => needed[exception] = true,
                    None => complaints.push(format!("{}:{}: {phrase:?}", file.path, index + 1)),
                }
            }
        }
    }
    for (exception, _) in exceptions.iter().zip(needed).filter(|(_, needed)| !needed) {
        complaints.push(format!("{}: {:?} is an exception no more", exception.path, exception.phrase));
    }
    complaints
}

/// Whether the phrase stands there as words of its own. An underscore separates words; a phrase that begins or ends with
/// a sign needs no separation there. The line is in lower case already.
fn contains(line: &str, phrase: &str) -> bool {
    let begins_with_letter = phrase.starts_with(|sign: char| sign.is_alphanumeric());
    let ends_with_letter = phrase.ends_with(|sign: char| sign.is_alphanumeric());
    line.match_indices(phrase).any(|(start, found)| {
        let before = line[..start].chars().next_back().filter(|sign| sign.is_alphanumeric());
        let after = line[start + found.len()..].chars().next().filter(|sign| sign.is_alphanumeric());
        !(begins_with_letter && before.is_some() || ends_with_letter && after.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_as_words_in_any_case() {
        let check =
            |text| complaints(&[TextFile::new("sample.rs", text)], &["parcel", "stamp!("], &["parcel post"], &[]);
        assert_eq!(check("fine\nlet parcel_id = 1;"), ["sample.rs:2: \"parcel\""]);
        assert_eq!(check("A Parcel."), ["sample.rs:1: \"parcel\""]);
        assert_eq!(check("stamp!()"), ["sample.rs:1: \"stamp!(\""]);
        assert!(check("parcelling, subparcel, timestamp!(), PARCEL POST").is_empty());
    }

    #[test]
    fn an_exception_covers_one_phrase_in_one_file_and_must_be_needed() {
        let exception = || [Exception { path: "a.rs", phrase: "parcel", reason: "a quotation" }];
        let file = |path, text| [TextFile::new(path, text)];
        assert!(complaints(&file("a.rs", "parcel"), &["parcel"], &[], &exception()).is_empty());
        assert_eq!(complaints(&file("b.rs", "parcel"), &["parcel"], &[], &exception()).len(), 2);
        assert_eq!(
            complaints(&file("a.rs", "letter"), &["parcel"], &[], &exception()),
            ["a.rs: \"parcel\" is an exception no more"]
        );
    }
}
