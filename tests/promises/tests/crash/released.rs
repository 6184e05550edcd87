//! What is released has no place at which it can be made to end.

use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "POSTRIDER_FAILPOINTS";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Nothing that `postrider` is built from has the feature, unless somebody asks for it.
#[test]
fn the_command_line_is_built_without_the_feature() {
    let tree = ["tree", "--package=postrider-cli", "--edges=normal,build", "--prefix=none", "--format={p}|{f}"];
    let output = Command::new(env!("CARGO")).args(tree).args(["--locked", "--offline"]).current_dir(root()).output();
    let output = output.expect("cargo runs, since it started this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let ours: Vec<&str> = text.lines().filter(|line| line.starts_with("postrider")).collect();
    assert!(ours.iter().any(|line| line.starts_with("postrider-sqlite ")), "{text}");
    for line in ours {
        let (package, features) = line.split_once('|').unwrap();
        assert!(!features.contains("failpoints"), "{package} has {features}");
    }
}

/// Without the feature neither the module nor a call of it exists: each stands directly below the condition, or in a
/// block that does.
#[test]
fn every_mention_in_the_sources_is_conditional() {
    let mut mentions = 0;
    for file in sources(&root().join("crates")) {
        if file.ends_with("failpoint.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            if line.contains("failpoint::") || line.contains("mod failpoint") {
                mentions += 1;
                let above = &lines[n.saturating_sub(12)..n];
                let conditional = above.iter().any(|above| above.contains(r#"#[cfg(feature = "failpoints")]"#));
                assert!(conditional, "{}: {}", file.display(), line.trim());
            }
            assert!(!line.contains(VARIABLE), "{}: {}", file.display(), line.trim());
        }
    }
    assert!(mentions >= 6, "{mentions} mentions");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The same search finds it in the build that is tried here, so it would find it in a release; `scripts/soak` looks into
/// one.
#[test]
fn the_build_under_trial_does_contain_the_variable() {
    let binary = postrider_promises::process::Workplace::on_sqlite().command([]).get_program().to_owned();
    let bytes = std::fs::read(binary).unwrap();
    assert!(bytes.windows(VARIABLE.len()).any(|window| window == VARIABLE.as_bytes()));
}
