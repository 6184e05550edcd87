//! The README: its command works, and its table has every test of a criterion.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{Process, World};

#[tokio::test]
async fn the_demo_tells_the_whole_story() {
    let world = World::new().await;
    let mut demo =
        Process::start(env!("CARGO_BIN_EXE_payments"), &["demo"], &[("POSTRIDER_TEST_POSTGRES", world.url())]);
    assert!(demo.ended().await.success(), "{}", demo.log());
    assert!(demo.log().contains("everything was told"));
    assert_eq!(demo.lines_with(&["a genuine webhook arrived"]).len(), 3, "{}", demo.log());
}

/// The names of functions that are for a criterion, in all sources below a folder.
fn criteria(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            criteria(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let found = text.split("fn ").skip(1).filter(|rest| rest.starts_with("doc_"));
            names.extend(found.map(|rest| rest.split('(').next().unwrap().to_owned()));
        }
    }
}

#[test]
fn the_table_has_every_test_and_every_test_in_it_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (mut own, mut engine) = (BTreeSet::new(), BTreeSet::new());
    criteria(&root.join("src"), &mut own);
    criteria(&root.join("tests"), &mut own);
    criteria(&root.join("../../crates/postrider-conformance/src"), &mut engine);
    let named: BTreeSet<String> =
        readme.split('`').skip(1).step_by(2).filter(|code| code.starts_with("doc_")).map(str::to_owned).collect();
    assert!(!named.is_empty());
    let forgotten: Vec<_> = own.difference(&named).collect();
    assert!(forgotten.is_empty(), "not in the table: {forgotten:#?}");
    let gone: Vec<_> = named.iter().filter(|name| !own.contains(*name) && !engine.contains(*name)).collect();
    assert!(gone.is_empty(), "in the table and nowhere else: {gone:#?}");
}
