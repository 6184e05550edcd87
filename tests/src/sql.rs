//! The statements of the two stores lie side by side: one file per statement, under the same name in both dialects.

use std::collections::BTreeSet;

use crate::files::TextFile;

/// Every statement and every migration must be included by a source of its crate. Other files of SQL, such as golden
/// schemas, are read by the tests they belong to.
pub fn unused_complaints(files: &[TextFile]) -> Vec<String> {
    let included: BTreeSet<String> = files
        .iter()
        .filter(|file| file.has_extension("rs"))
        .flat_map(|file| {
            let folder = crate_of(&file.path);
            let whole = arguments(&file.text, "include_str!(").map(|name| name.trim_start_matches("../").to_owned());
            let short = arguments(&file.text, "sql!(").map(|name| format!("sql/{name}.sql"));
            whole.chain(short).map(move |name| format!("{folder}/{name}"))
        })
        .collect();
    files
        .iter()
        .filter(|file| file.has_extension("sql") && is_embedded(&file.path) && !included.contains(&file.path))
        .map(|file| format!("{} is included nowhere", file.path))
        .collect()
}

/// The string literals that follow directly on a macro's opening, such as `include_str!("../sql/claim.sql")` or
/// `sql!("claim")`, which stands for the same.
fn arguments<'a>(text: &'a str, opening: &str) -> impl Iterator<Item = &'a str> {
    text.split(opening).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
}

fn is_embedded(path: &str) -> bool {
    matches!(path.split('/').nth(2), Some("sql" | "migrations"))
}

/// `crates/name` of a path below it.
fn crate_of(path: &str) -> String {
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Names that one store has and the other has not must be explained: as a step of a statement that the other store has
/// (`claim_grant` beside `claim`), or in the list of exceptions, which names nothing else.
pub fn name_complaints(postgres: &[&str], sqlite: &[&str], exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (store, own, other) in [("Postgres", postgres, sqlite), ("SQLite", sqlite, postgres)] {
        for name in own.iter().filter(|name| !other.contains(name)) {
            let step_of_other = other.iter().any(|whole| is_step(name, whole));
            let steps_in_other = other.iter().any(|step| is_step(step, name));
            let excepted = exceptions.iter().any(|(excepted, _)| excepted == name);
            if !step_of_other && !steps_in_other && !excepted {
                complaints.push(format!("{name}.sql exists for {store} only"));
            }
        }
    }
    for (name, _) in exceptions {
        if postgres.contains(name) == sqlite.contains(name) {
            complaints.push(format!("{name}.sql is an exception no more"));
        }
    }
    complaints
}

fn is_step(name: &str, whole: &str) -> bool {
    name.strip_prefix(whole).is_some_and(|rest| rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_file_is_found() {
        let files = [
            TextFile::new("crates/store/src/claim.rs", "include_str!(\"../sql/claim.sql\")"),
            TextFile::new("crates/store/src/deep/settle.rs", "include_str!(\n    \"../../sql/settle.sql\"\n)"),
            TextFile::new("crates/store/src/renew.rs", "sql!(\"renew\")"),
            TextFile::new("crates/store/sql/claim.sql", ""),
            TextFile::new("crates/store/sql/renew.sql", ""),
            TextFile::new("crates/store/sql/settle.sql", ""),
            TextFile::new("crates/store/sql/old.sql", ""),
            TextFile::new("crates/store/migrations/0002_old.sql", ""),
            TextFile::new("crates/store/schema.sql", ""),
            TextFile::new("crates/another/sql/claim.sql", ""),
        ];
        assert_eq!(
            unused_complaints(&files),
            [
                "crates/store/sql/old.sql is included nowhere",
                "crates/store/migrations/0002_old.sql is included nowhere",
                "crates/another/sql/claim.sql is included nowhere",
            ]
        );
    }

    #[test]
    fn a_name_in_one_store_only_must_be_explained() {
        assert!(name_complaints(&["claim", "enqueue"], &["claim", "claim_grant", "enqueue_event"], &[]).is_empty());
        assert_eq!(name_complaints(&["claim", "wake"], &["claim"], &[]), ["wake.sql exists for Postgres only"]);
        assert_eq!(name_complaints(&["claim"], &["claim", "bury"], &[]), ["bury.sql exists for SQLite only"]);
        assert!(name_complaints(&["claim"], &["claim", "bury"], &[("bury", "why")]).is_empty());
        assert_eq!(name_complaints(&["claim"], &["claim"], &[("claim", "why")]), ["claim.sql is an exception no more"]);
        assert_eq!(name_complaints(&[], &[], &[("gone", "why")]), ["gone.sql is an exception no more"]);
    }
}
