//! Whether the file is still where it was opened.
//!
//! A file that is removed or replaced under a process goes on existing for that process alone, until it ends. SQLite does
//! not mind, and everything that it commits then is lost. The same goes for its write-ahead log, which has the last
//! commits. So nothing is committed to files that others would not find.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use postrider::{StoreError, StoreErrorCode};

/// The database's file and its log, as they were when the first transaction began.
#[derive(Debug)]
pub(crate) struct InPlace {
    paths: [PathBuf; 2],
    opened: OnceLock<[Option<Identity>; 2]>,
}

/// What a file is, whatever it is called: its device and its number there.
type Identity = (u64, u64);

impl InPlace {
    pub(crate) fn new(path: &Path) -> Self {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        // A relative path would lead elsewhere if the process went elsewhere.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { paths: [absolute(path), absolute(Path::new(&log))], opened: OnceLock::new() }
    }

    /// Where the log is.
    pub(crate) fn log(&self) -> &Path {
        &self.paths[1]
    }

    /// To be called within a transaction, or after the first one: both files are there from its beginning on.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let now = self.paths.each_ref().map(|path| identity(path));
        let moved = self.opened.get_or_init(|| now).iter().zip(&now).position(|(opened, now)| opened != now);
        let Some(moved) = moved else { return Ok(()) };
        let message = format!(
            "{} was removed or replaced while it is in use; nothing is written to it any more, because that would be lost \
             with this process: put it back, or restart",
            self.paths[moved].display()
        );
        Err(StoreError::new(StoreErrorCode::Unavailable, message))
    }

    /// The same, for whoever has no transaction. Before the first one it is as good as in place.
    pub(crate) fn check_from_outside(&self) -> Result<(), StoreError> {
        if self.opened.get().is_some() { self.check() } else { Ok(()) }
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Where an open file cannot be removed, there is nothing to notice.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
