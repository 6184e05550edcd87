//! Only one process may dispatch from a file.
//!
//! The lock is the operating system's, on `<file>.lock`, so it is gone the moment its process is, however that ended.
//! The file stays: removing it could take away the one that another process has just locked.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use postrider::{StoreError, StoreErrorCode};

#[derive(Debug)]
pub(crate) struct DispatchLock {
    // The lock lasts as long as the file is open.
    _file: File,
}

impl DispatchLock {
    /// Takes the lock that belongs to the database at `path`, or says who has it.
    pub(crate) fn take(path: &Path) -> Result<Self, StoreError> {
        let path = lock_path(path);
        let unavailable = |error: std::io::Error| {
            let message = format!("could not lock {}: {error}", path.display());
            StoreError::new(StoreErrorCode::Unavailable, message).caused_by(error)
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(&path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        // The number is for people who wonder who has the lock; the lock holds without it.
        let note = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        if let Err(error) = note {
            tracing::warn!(path = %path.display(), %error, "could not write the process id into the lock file");
        }
        Ok(Self { _file: file })
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn locked(path: &Path, file: &mut File) -> StoreError {
    let mut text = String::new();
    let holder = match file.take(32).read_to_string(&mut text) {
        Ok(_) if text.trim().parse::<u32>().is_ok() => format!("process {}", text.trim()),
        _ => "another process".to_owned(),
    };
    let message = format!(
        "{holder} dispatches from this database already, it holds {}; stop it, or run this one without dispatching",
        path.display()
    );
    StoreError::new(StoreErrorCode::Locked, message)
}
