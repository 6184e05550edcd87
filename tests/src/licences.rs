//! What `deny.toml` says of licences and of packages in several versions, applied without `cargo deny`, so that the
//! rule holds on a machine that has only the toolchain. The file is the only place where the rule is written.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::cargo::{Built, Package};

/// The parts of `deny.toml` that are read here.
#[derive(Debug, Deserialize)]
pub struct Rules {
    licenses: Licences,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

/// A version that is tolerated beside a newer one, and why.
#[derive(Debug, Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    package: String,
    reason: String,
}

impl Rules {
    /// Reads the text of `deny.toml`.
    pub fn parse(text: &str) -> Self {
        toml::from_str(text).expect("deny.toml has the tables [licenses] and [bans]")
    }
}

/// Every package must be usable under licences on the list alone.
pub fn licence_complaints(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let allowed: BTreeSet<&str> = rules.licenses.allow.iter().map(String::as_str).collect();
    let mut complaints = Vec::new();
    for Package { name, version, license, .. } in packages {
        let Some(license) = license else {
            complaints.push(format!("{name} {version} states no licence"));
            continue;
        };
        match Expression::parse_mode(license, ParseMode::LAX) {
            Err(_) => complaints.push(format!("{name} {version}: {license:?} is not an SPDX expression")),
            Ok(expression) => {
                if !expression.evaluate(|needed| allowed.contains(needed.to_string().as_str())) {
                    complaints.push(format!("{name} {version}: {license} is not covered by the allowed licences"));
                }
            }
        }
    }
    complaints
}

/// A package may be there in one version only, unless the others are listed with a reason; and the list names nothing
/// that is not there.
pub fn duplicate_complaints(rules: &Rules, closure: &[Built]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for built in closure {
        versions.entry(&built.name).or_default().insert(&built.version);
    }
    let mut complaints = Vec::new();
    let mut used = BTreeSet::new();
    for (name, versions) in &versions {
        let unexplained: Vec<&str> = versions
            .iter()
            .copied()
            .filter(|version| {
                let skip = rules.bans.skip.iter().find(|skip| skip.covers(name, version));
                used.extend(skip.map(|skip| &skip.package));
                skip.is_none()
            })
            .collect();
        if unexplained.len() > 1 {
            complaints.push(format!("{name} is there in the versions {}", unexplained.join(", ")));
        }
    }
    for skip in &rules.bans.skip {
        if skip.reason.trim().is_empty() {
            complaints.push(format!("{} is tolerated without a reason", skip.package));
        }
        if !used.contains(&skip.package) {
            complaints.push(format!("{} is tolerated, but not there", skip.package));
        }
    }
    complaints
}

impl Skip {
    /// `sha2@0.10` covers 0.10.9 and not 0.1.1.
    fn covers(&self, name: &str, version: &str) -> bool {
        self.package.split_once('@').is_some_and(|(skipped, prefix)| {
            skipped == name && version.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, license: Option<&str>) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            license: license.map(str::to_owned),
            source: None,
            manifest_path: String::new(),
            dependencies: Vec::new(),
        }
    }

    fn rules(skip: &str) -> Rules {
        Rules::parse(&format!("[licenses]\nallow = ['MIT', 'Apache-2.0', 'ISC']\n[bans]\nskip = [{skip}]"))
    }

    #[test]
    fn expressions_are_weighed() {
        let check = |license| licence_complaints(&rules(""), &[package("sample", "1.0.0", license)]);
        for good in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "Apache-2.0 / MIT", "Apache-2.0 AND ISC"] {
            assert!(check(Some(good)).is_empty(), "{good}: {:?}", check(Some(good)));
        }
        for bad in ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "(MIT OR ISC) AND MPL-2.0", "all rights reserved"] {
            assert_eq!(check(Some(bad)).len(), 1, "{bad}");
        }
        assert_eq!(check(None), ["sample 1.0.0 states no licence"]);
    }

    #[test]
    fn a_second_version_needs_a_reason() {
        let built = |name: &str, version: &str| Built { name: name.into(), version: version.into(), features: vec![] };
        let closure =
            [built("twice", "0.10.9"), built("twice", "0.11.1"), built("one", "1.0.0"), built("one", "1.0.0")];
        let check = |skip| duplicate_complaints(&rules(skip), &closure);
        assert_eq!(check(""), ["twice is there in the versions 0.10.9, 0.11.1"]);
        assert!(check("{ crate = 'twice@0.10', reason = 'the driver is behind' }").is_empty());
        assert_eq!(check("{ crate = 'twice@0.10', reason = ' ' }"), ["twice@0.10 is tolerated without a reason"]);
        assert_eq!(
            check("{ crate = 'twice@0.1', reason = 'no such version' }"),
            ["twice is there in the versions 0.10.9, 0.11.1", "twice@0.1 is tolerated, but not there"]
        );
    }
}
