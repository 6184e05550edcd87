//! Licences of what is linked, and packages that are there twice, by the rules of `deny.toml`.

use postrider_tests::licences::{self, Rules};
use postrider_tests::{assert_none, cargo, files};

fn rules() -> Rules {
    Rules::parse(&std::fs::read_to_string(files::root().join("deny.toml")).expect("deny.toml is there"))
}

#[test]
fn every_dependency_may_be_used_under_an_allowed_licence() {
    assert_none(&licences::licence_complaints(&rules(), &cargo::metadata().packages));
}

#[test]
fn a_dependency_in_two_versions_has_a_reason() {
    assert_none(&licences::duplicate_complaints(&rules(), &cargo::whole_closure()));
}
