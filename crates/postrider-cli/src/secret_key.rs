//! The key that encrypts secrets at rest: configured, or in a file beside an SQLite database.
//!
//! The file is made once, whole or not at all, and never written again: whoever loses the race to make it reads the
//! winner's. It is not made for a database that already has encrypted secrets: a new key would open none of them.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use postrider::{Endpoint, EndpointFilter, Keyring, PageRequest, SecretKey, Store, StoreError};

use crate::failure::{Exit, Failure};

/// How many endpoints are looked at: ten thousand, which takes a second or two.
const MOST_PAGES: usize = 40;

/// The key file of an SQLite database.
pub(crate) fn file_beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".key");
    name.into()
}

/// Whether others than its owner can read a file.
pub(crate) fn is_open_to_others(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// The keys in a file; none if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<Keyring>, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // What is not UTF-8 is not a key either.
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(damaged(path)),
        Err(error) => {
            let message = format!("cannot read the secret key in `{}`: {error}", path.display());
            return Err(Failure::new(Exit::Failed, "secret_key_unreadable", message)
                .hint("it must be readable by the user who runs this, or secret_key must be set"));
        }
    };
    // One per line, so that a key in a file can be rotated like one in a variable.
    let texts = text.split([',', '\n']).map(str::trim).filter(|text| !text.is_empty());
    let keys = texts.map(SecretKey::parse).collect::<Result<Vec<_>, _>>().map_err(|_| damaged(path))?;
    if keys.is_empty() { Err(damaged(path)) } else { Ok(Some(Keyring::new(keys))) }
}

fn damaged(path: &Path) -> Failure {
    let message = format!("`{}` does not contain a secret key: 32 bytes in base64, one key per line", path.display());
    Failure::new(Exit::Failed, "secret_key_damaged", message)
        .hint("restore it from a backup; if no endpoint was registered yet, remove it and a new one is made")
}

/// Makes the file with a new key, unless another process has just done so; reads what is there then.
pub(crate) fn create(path: &Path) -> Result<Keyring, Failure> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot write a secret key to `{}`: {error}", path.display());
        Failure::new(Exit::Failed, "secret_key_unwritable", message)
            .hint("the folder must be writable, or secret_key must be set")
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Only the owner may read it, from the moment it exists.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(format!("{}\n", SecretKey::generate().reveal()).as_bytes()).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => {
            // A key that a power cut takes away takes every secret with it.
            let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
            if cfg!(unix) {
                synced.map_err(failed)?;
            }
            tracing::info!("a new secret key is in `{}`; keep a copy of it, apart from the database", path.display());
        }
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error.error)),
    }
    let gone = || failed(ErrorKind::NotFound.into());
    read(path)?.ok_or_else(gone)
}

/// Refuses keys that do not open the secrets of the registered endpoints. Trouble of another kind is one endpoint's, and
/// keeps nobody else from being delivered to.
pub(crate) async fn must_fit(store: &dyn Store) -> Result<(), Failure> {
    let mut closed = Vec::new();
    let mut why = None;
    for endpoint in endpoints(store).await? {
        if endpoint.lacks_our_key() {
            closed.push(endpoint.id.to_string());
            why = why.or(endpoint.trouble);
        }
    }
    let Some(why) = why else { return Ok(()) };
    let (count, first) = (closed.len(), &closed[0]);
    let message = format!("secret_key does not open the secrets of {count} endpoints, such as {first}: {why}");
    Err(Failure::new(Exit::Refused, "secret_key_wrong", message)
        .hint("set secret_key to the key that this database was used with; several keys are separated by commas"))
}

/// The registered endpoints, as many as are looked at.
pub(crate) async fn endpoints(store: &dyn Store) -> Result<Vec<Endpoint>, StoreError> {
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let page = PageRequest::new(PageRequest::MAX_LIMIT, cursor).expect("the largest page is a page");
        let page = store.endpoints(&EndpointFilter::default(), &page).await?;
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(all)
}

/// The key file is gone, and the database needs it.
pub(crate) fn lost(path: &Path) -> Failure {
    let message = format!("`{}` is missing, and the database has secrets that only its key opens", path.display());
    Failure::new(Exit::Failed, "secret_key_missing", message)
        .hint("restore it from a backup, or set secret_key to the key that was in it")
}

/// A Postgres database has no place for a key beside it.
pub(crate) fn required() -> Failure {
    let message = "secret_key is not set; on Postgres it is needed to encrypt the secrets of endpoints";
    Failure::new(Exit::Refused, "secret_key_missing", message)
        .hint("make one with `postrider config --new-secret-key`, and give it to every process as POSTRIDER_SECRET_KEY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_make_the_file_at_once_all_read_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_beside(&folder.path().join("a.db"));
        let made: Vec<Keyring> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..16).map(|_| scope.spawn(|| create(&path).unwrap())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(made.iter().all(|ring| *ring == made[0]));
        assert_eq!(read(&path).unwrap(), Some(made[0].clone()));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_read_the_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db.key");
        create(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db.key");
        for bytes in [&b""[..], b"\n", b"canary", b"\xff\xfe", b"cGFzc3dvcmQ=\n"] {
            std::fs::write(&path, bytes).unwrap();
            for refused in [read(&path).map(|_| ()), create(&path).map(|_| ())] {
                let Err(Failure::Told(problem)) = refused else { panic!("{bytes:?} is refused") };
                assert_eq!(problem.code, "secret_key_damaged");
                assert!(!problem.to_string().contains("canary"));
            }
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn a_file_may_have_older_keys_below_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db.key");
        let (new, old) = (SecretKey::generate(), SecretKey::generate());
        std::fs::write(&path, format!("{}\n{}\n", new.reveal(), old.reveal())).unwrap();
        assert_eq!(read(&path).unwrap(), Some(Keyring::new([new, old])));
    }
}
