//! What cargo knows of the workspace. It is asked offline and only for this machine's platform: whoever can build the
//! tests has everything that the answer needs.

use std::process::Command;

use serde::Deserialize;

use crate::files;

/// The answer of `cargo metadata`, as far as it is used here.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// All packages, of the workspace and from elsewhere.
    pub packages: Vec<Package>,
}

/// One version of one package.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name in the registry.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// Its SPDX expression, if it states one.
    pub license: Option<String>,
    /// Where it comes from; nothing for members of the workspace.
    pub source: Option<String>,
    /// Where its manifest lies.
    pub manifest_path: String,
    /// What it asks for, of every kind.
    pub dependencies: Vec<Dependency>,
}

/// One line in a manifest's dependency tables.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package asked for.
    pub name: String,
    /// Nothing for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// The folder it is taken from, when it is a member.
    pub path: Option<String>,
}

/// A package as it is built for one purpose, with the features that this purpose turns on.
#[derive(Debug, PartialEq, Eq)]
pub struct Built {
    /// Its name in the registry.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// Its features, sorted as cargo prints them.
    pub features: Vec<String>,
}

/// Asks for the whole workspace with all features.
pub fn metadata() -> Metadata {
    let platform = platform();
    let text = cargo(&["metadata", "--format-version=1", "--all-features", "--filter-platform", &platform]);
    serde_json::from_str(&text).expect("cargo metadata prints the JSON it documents")
}

/// Everything that a build of one package alone links, with features. Unlike in [`metadata`], what other members turn
/// on does not show.
pub fn normal_closure(package: &str) -> Vec<Built> {
    parse_tree(&cargo(&["tree", "--package", package, "--edges=normal", "--prefix=none", "--format={p}|{f}"]))
}

/// Everything that is built for the workspace and its tests, with all features. The lock file and [`metadata`] name
/// more: packages that only an optional dependency of somebody else's would need.
pub fn whole_closure() -> Vec<Built> {
    parse_tree(&cargo(&["tree", "--workspace", "--all-features", "--prefix=none", "--format={p}|{f}"]))
}

fn parse_tree(text: &str) -> Vec<Built> {
    text.lines()
        .filter_map(|line| line.trim_end_matches(" (*)").split_once('|'))
        .map(|(package, features)| {
            let mut words = package.split(' ');
            Built {
                name: words.next().unwrap_or_default().to_owned(),
                version: words.next().unwrap_or_default().trim_start_matches('v').to_owned(),
                features: features.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned).collect(),
            }
        })
        .collect()
}

fn platform() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().expect("rustc runs, since it built this test");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc -vV names its host").to_owned()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--offline"])
        .current_dir(files::root())
        .output()
        .expect("cargo runs, since it started this test");
    assert!(output.status.success(), "cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo prints UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_with_features_and_repetitions() {
        let text =
            "postrider v0.1.0 (/somewhere/postrider)|\nhyper v1.9.0|client,http1\nhyper v1.9.0|client,http1 (*)\n";
        let hyper =
            || Built { name: "hyper".into(), version: "1.9.0".into(), features: vec!["client".into(), "http1".into()] };
        let engine = Built { name: "postrider".into(), version: "0.1.0".into(), features: vec![] };
        assert_eq!(parse_tree(text), [engine, hyper(), hyper()]);
    }
}
