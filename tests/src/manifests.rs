//! What every member's manifest takes from the workspace.

use toml::Table;

use crate::files::TextFile;

/// The rules for one `Cargo.toml` of a member.
pub fn complaints(manifest: &TextFile) -> Vec<String> {
    let path = &manifest.path;
    let Ok(table) = manifest.text.parse::<Table>() else {
        return vec![format!("{path} is not TOML")];
    };
    let inherits = |section: &str, key: &str| {
        let value = table.get(section).and_then(|section| section.get(key));
        value.and_then(|value| value.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
    };
    let mut complaints = Vec::new();
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !inherits("package", key) {
            complaints.push(format!("{path} does not take {key} from the workspace"));
        }
    }
    let lints = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
    if lints != Some(true) {
        complaints.push(format!("{path} does not take the lints from the workspace"));
    }
    if table.get("package").and_then(|package| package.get("description")).is_none() {
        complaints.push(format!("{path} has no description"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = 'sample'\ndescription = 'A sample'\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [lints]\nworkspace = true\n";

    #[test]
    fn each_missing_line_is_a_complaint() {
        assert!(complaints(&TextFile::new("Cargo.toml", GOOD)).is_empty());
        for line in GOOD.lines().filter(|line| line.contains("workspace") || line.starts_with("description")) {
            let without = GOOD.replace(&format!("{line}\n"), "");
            assert!(!complaints(&TextFile::new("Cargo.toml", &without)).is_empty(), "without {line}");
        }
        let own = GOOD.replace("license.workspace = true", "license = 'MIT'");
        assert_eq!(
            complaints(&TextFile::new("Cargo.toml", &own)),
            ["Cargo.toml does not take license from the workspace"]
        );
        assert_eq!(complaints(&TextFile::new("Cargo.toml", "[")), ["Cargo.toml is not TOML"]);
    }
}
