//! Only one process may dispatch from a file.
//!
//! The lock is the operating system's, on `<file>.lock`, so it is gone the moment its process is, however that ended.
//! The file stays: removing it could take away the one that another process has just locked.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider::{StoreError, StoreErrorCode};

/// How long to try: somebody may only be [looking](holder), which is over at once.
const WAIT: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct DispatchLock {
    // The lock lasts as long as the file is open.
    _file: File,
}

impl DispatchLock {
    /// Takes the lock that belongs to the database at `path`, or says who has it.
    pub(crate) async fn take(path: &Path) -> Result<Self, StoreError> {
        let path = lock_path(path);
        let unavailable = |error: std::io::Error| {
            let message = format!("could not lock {}: {error}", path.display());
            StoreError::new(StoreErrorCode::Unavailable, message).caused_by(error)
        };
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(unavailable)?;
        let patience = Instant::now() + WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < patience => tokio::time::sleep(WAIT / 10).await,
                Err(TryLockError::WouldBlock) => return Err(locked(&path, &mut file)),
                Err(TryLockError::Error(error)) => return Err(unavailable(error)),
            }
        }
        // The number is for people who wonder who has the lock; the lock holds without it.
        let note = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        if let Err(error) = note {
            tracing::warn!(path = %path.display(), %error, "could not write the process id into the lock file");
        }
        Ok(Self { _file: file })
    }
}

/// Who dispatches from a file.
#[derive(Debug)]
pub(crate) enum Holder {
    /// Nobody.
    Nobody,
    /// The process of this number.
    Process(u32),
    /// Somebody who has not said who it is.
    Somebody,
    /// It cannot be found out.
    Unknown(std::io::Error),
}

/// Looks who has the lock that belongs to the database at `path`. To look is to take it for a moment, if nobody has it;
/// whoever wants to take it then comes again.
pub(crate) fn holder(path: &Path) -> Holder {
    let mut file = match File::open(lock_path(path)) {
        Ok(file) => file,
        // It is made by the first who dispatches.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Holder::Nobody,
        Err(error) => return Holder::Unknown(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Holder::Nobody,
        Err(TryLockError::WouldBlock) => noted(&mut file).map_or(Holder::Somebody, Holder::Process),
        Err(TryLockError::Error(error)) => Holder::Unknown(error),
    }
}

/// The number that whoever has the lock wrote into the file.
fn noted(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn locked(path: &Path, file: &mut File) -> StoreError {
    let holder = noted(file).map_or_else(|| "another process".to_owned(), |number| format!("process {number}"));
    let message = format!(
        "{holder} dispatches from this database already, it holds {}; stop it, or run this one without dispatching",
        path.display()
    );
    StoreError::new(StoreErrorCode::Locked, message)
}
