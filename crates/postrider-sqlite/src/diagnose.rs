//! What an operator should know about the file.

use std::path::Path;

use postrider::store::{Finding, FindingLevel};
use rusqlite::Connection;

use crate::vault::Vault;

pub(crate) fn diagnose(_connection: &Connection, _path: &Path, vault: &Vault) -> rusqlite::Result<Vec<Finding>> {
    let _ = vault.keyring();
    Ok(vec![Finding {
        check: "sqlite_version",
        level: FindingLevel::Ok,
        detail: rusqlite::version().to_owned(),
        hint: None,
    }])
}
