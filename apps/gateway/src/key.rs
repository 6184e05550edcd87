//! The key that encrypts the webhooks' secrets in the file.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use postrider::{EndpointId, InvalidSecretKey, Keyring, SecretKey};

use crate::Settings;

/// Why there is no key to work with.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("the key file {}: {source}; or set GATEWAY_SECRET_KEY", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file has something else in it.
    #[error("the key file {}: {source}; restore it, or remove it if no webhook was configured yet", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: InvalidSecretKey,
    },
    /// It is not the key that the secrets were encrypted with.
    #[error(
        "the key in {from} does not open the secret of the webhook {webhook_id}; use the key that it was made with"
    )]
    Wrong {
        /// Where the key came from.
        from: String,
        /// A webhook that it does not open.
        webhook_id: EndpointId,
    },
}

impl KeyError {
    pub(crate) fn wrong(settings: &Settings, webhook_id: EndpointId) -> Self {
        let from = match settings.secret_key {
            Some(_) => "GATEWAY_SECRET_KEY".to_owned(),
            None => file_beside(&settings.database).display().to_string(),
        };
        Self::Wrong { from, webhook_id }
    }
}

/// The key that was given, or else the one in the file beside the database.
pub(crate) fn keyring(settings: &Settings) -> Result<Keyring, KeyError> {
    let key = match &settings.secret_key {
        Some(key) => key.clone(),
        None => read_or_make(&file_beside(&settings.database))?,
    };
    Ok(Keyring::new([key]))
}

fn file_beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".key");
    PathBuf::from(name)
}

fn read_or_make(path: &Path) -> Result<SecretKey, KeyError> {
    let failed = |source| KeyError::File { path: path.to_owned(), source };
    match std::fs::read_to_string(path) {
        Ok(text) => SecretKey::parse(&text).map_err(|source| KeyError::Damaged { path: path.to_owned(), source }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = SecretKey::generate();
            let mut file = for_owner_only().open(path).map_err(failed)?;
            writeln!(file, "{}", key.reveal()).and_then(|()| file.sync_all()).map_err(failed)?;
            tracing::info!(path = %path.display(), "a new key encrypts the webhooks' secrets; keep a copy of it");
            Ok(key)
        }
        Err(error) => Err(failed(error)),
    }
}

fn for_owner_only() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
