//! A database of its own for a test.

use std::path::{Path, PathBuf};

use postrider::{Keyring, SecretKey};
use tempfile::TempDir;

use crate::SqliteStore;

/// The key under which tests keep secrets; the same for every handle on a file.
pub fn keyring() -> Keyring {
    Keyring::new(SecretKey::parse("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
}

/// A migrated database in a folder of its own, which is removed with this value.
#[derive(Debug)]
pub struct TestDatabase {
    // Fields are dropped in order: the store ends its thread before the folder goes.
    store: SqliteStore,
    path: PathBuf,
    _folder: TempDir,
}

impl TestDatabase {
    /// A new one.
    pub async fn create() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("postrider.db");
        let store = SqliteStore::open(&path).expect("a new file can be opened").with_keyring(keyring());
        store.migrate().await.expect("a new file can be migrated");
        Self { store, path, _folder: folder }
    }

    /// The store on it.
    pub fn store(&self) -> &SqliteStore {
        &self.store
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
