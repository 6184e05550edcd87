//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file, with its path from the root of the repository, separated by slashes.
#[derive(Debug)]
pub struct TextFile {
    /// For example `crates/postrider/src/lib.rs`.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl TextFile {
    /// For samples in tests of the rules.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether the name ends in a dot and this.
    pub fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

/// Where the repository lies.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_owned()
}

/// Every text file below a folder of the repository, in the order of their paths. Build output and git's own data are
/// no part of it, nor are files that are not UTF-8.
pub fn text_files(below: &str) -> Vec<TextFile> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root.join(below), &mut found);
    found.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(!found.is_empty(), "no files below {below:?}: the rule that asked for them would hold for nothing");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<TextFile>) {
    for entry in fs::read_dir(folder).expect("folders of the repository can be read").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            let generated = name == ".git" || name == "node_modules" || path.join("CACHEDIR.TAG").exists();
            if !generated && name != "target" {
                collect(root, &path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).expect("the walk began at the root");
            found.push(TextFile { path: path.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
