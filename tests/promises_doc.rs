//! What `docs/promises.md` says is true of the tests that there are, and every mutation can still be made.

use postrider_tests::promises::{self, Mutations, Promise};
use postrider_tests::{assert_none, files};

fn document() -> String {
    std::fs::read_to_string(files::root().join("docs/promises.md")).expect("docs/promises.md is there")
}

fn promised() -> Vec<Promise> {
    promises::promises(&document())
}

#[test]
fn every_promise_has_a_test() {
    assert_none(&promises::completeness_complaints(&promised()));
}

#[test]
fn every_test_that_is_named_exists() {
    assert_none(&promises::existence_complaints(&document(), &files::text_files("")));
}

#[test]
fn no_test_speaks_of_a_promise_that_is_not_in_the_document() {
    let tests: Vec<_> = files::text_files("tests/promises");
    assert!(tests.iter().any(|file| !promises::mentioned(file).is_empty()), "the tests say what they try");
    assert_none(&promises::mention_complaints(&promised(), &tests));
}

#[test]
fn every_guard_that_is_to_be_taken_away_is_there() {
    let list = files::root().join("tests/mutations/guards.toml");
    let mutations: Mutations = toml::from_str(&std::fs::read_to_string(list).unwrap()).expect("the list can be read");
    assert_none(&promises::mutation_complaints(&mutations, &promised(), &files::text_files("crates")));
}
