//! What an operator should know about the file: each thing that was looked at, how it is, and what to do about it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider::store::{Finding, FindingLevel};
use postrider::{EndpointId, EndpointSettings};
use rusqlite::{Connection, Error, ErrorCode};

use crate::dispatch_lock::{self, Holder};
use crate::migrate;
use crate::sql::sql;
use crate::vault::Vault;

/// The check of the whole file reads all of it, which can be many gigabytes.
const CHECK_FOR: Duration = Duration::from_secs(10);
/// Steps of SQLite's machine between two looks at the clock.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;
/// The log is cut back to its beginning every 10,000 pages, or 40 MB, unless somebody keeps it from that.
const LARGE_LOG_BYTES: u64 = 256 * MIB;
const LITTLE_SPACE_BYTES: u64 = 1024 * MIB;
const MIB: u64 = 1024 * 1024;
/// At most so many endpoints are named; the others are counted.
const MAX_NAMED: usize = 5;

pub(crate) fn diagnose(connection: &Connection, path: &Path, vault: &Vault) -> rusqlite::Result<Vec<Finding>> {
    let mut findings = vec![ok("sqlite_version", format!("SQLite {}", rusqlite::version()))];
    findings.push(journal_mode(connection)?);
    findings.push(integrity(connection)?);
    findings.push(write_ahead_log(path));
    findings.extend(disk_space(path));
    match migrate::check(connection) {
        Ok(()) => {
            findings.push(ok("schema", "the schema is the one that this program knows".to_owned()));
            findings.push(dispatcher(connection, path)?);
            findings.extend(secrets(connection, vault)?);
        }
        // Without our tables there is nothing else to look at.
        Err(error) => findings.push(finding("schema", FindingLevel::Problem, error.message)),
    }
    Ok(findings)
}

fn finding(check: &'static str, level: FindingLevel, detail: String) -> Finding {
    Finding { check, level, detail, hint: None }
}

fn ok(check: &'static str, detail: String) -> Finding {
    finding(check, FindingLevel::Ok, detail)
}

fn bad(check: &'static str, level: FindingLevel, detail: String, hint: &str) -> Finding {
    Finding { hint: Some(hint.to_owned()), ..finding(check, level, detail) }
}

fn journal_mode(connection: &Connection) -> rusqlite::Result<Finding> {
    let mode: String = connection.query_row("pragma journal_mode", [], |row| row.get(0))?;
    Ok(if mode == "wal" {
        ok("journal_mode", "write-ahead log".to_owned())
    } else {
        let detail = format!("the journal mode is `{mode}`: reading and writing wait for each other");
        let hint = "somebody has switched it; the next start of Postrider switches it back to `wal`";
        bad("journal_mode", FindingLevel::Warning, detail, hint)
    })
}

/// SQLite's own check of the file's structure, as far as it gets in the time that it has.
fn integrity(connection: &Connection) -> rusqlite::Result<Finding> {
    let deadline = Instant::now() + CHECK_FOR;
    connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(move || Instant::now() >= deadline))?;
    let checked = connection.query_row("pragma quick_check(1)", [], |row| row.get::<_, String>(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    let damaged = |said: &str| {
        let detail = format!("the file is damaged: {said}");
        let hint = "stop Postrider, and restore the file from a backup or use sqlite3's `.recover`";
        bad("integrity", FindingLevel::Problem, detail, hint)
    };
    match checked {
        Ok(said) if said == "ok" => Ok(ok("integrity", "the file is sound".to_owned())),
        Ok(said) => Ok(damaged(&said)),
        Err(Error::SqliteFailure(failure, said)) => match failure.code {
            ErrorCode::OperationInterrupted => {
                let detail = format!("sound as far as it could be read in {} s", CHECK_FOR.as_secs());
                Ok(ok("integrity", detail))
            }
            ErrorCode::DatabaseCorrupt => Ok(damaged(&said.unwrap_or_else(|| failure.to_string()))),
            _ => Err(Error::SqliteFailure(failure, said)),
        },
        Err(error) => Err(error),
    }
}

fn write_ahead_log(path: &Path) -> Finding {
    let bytes = beside(path, "-wal").metadata().map_or(0, |file| file.len());
    let detail = format!("the write-ahead log has {} MiB", bytes / MIB);
    if bytes < LARGE_LOG_BYTES {
        return ok("write_ahead_log", detail);
    }
    let hint = "a reader that stays open keeps it from being cut back: look for an open transaction, a backup or a shell \
                on the file";
    bad("write_ahead_log", FindingLevel::Warning, detail, hint)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// None where the system does not say.
fn disk_space(path: &Path) -> Option<Finding> {
    let bytes = free_bytes(path)?;
    let detail = format!("{} MiB are free on the disk", bytes / MIB);
    Some(match bytes {
        0..MIB => bad("disk_space", FindingLevel::Problem, detail, "free some space: nothing can be written"),
        _ if bytes < LITTLE_SPACE_BYTES => {
            let hint = "free some space, keep things for a shorter time (`retention`), or move the file";
            bad("disk_space", FindingLevel::Warning, detail, hint)
        }
        _ => ok("disk_space", detail),
    })
}

#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

fn dispatcher(connection: &Connection, path: &Path) -> rusqlite::Result<Finding> {
    const CHECK: &str = "dispatcher";
    match dispatch_lock::holder(path) {
        Holder::Process(number) => Ok(ok(CHECK, format!("process {number} dispatches from this file"))),
        Holder::Somebody => Ok(ok(CHECK, "another process dispatches from this file".to_owned())),
        Holder::Nobody => {
            let waiting: bool =
                connection.query_row("select exists (select 1 from postrider_ready)", [], |row| row.get(0))?;
            Ok(if waiting {
                let detail = "deliveries are due, and nobody dispatches from this file".to_owned();
                bad(CHECK, FindingLevel::Warning, detail, "run `postrider serve` or `postrider dispatch` on it")
            } else {
                ok(CHECK, "nobody dispatches from this file, and nothing is due".to_owned())
            })
        }
        Holder::Unknown(error) => {
            let detail = format!("the lock file cannot be looked at: {error}");
            let hint = "the user that runs Postrider must be able to write beside the database";
            Ok(bad(CHECK, FindingLevel::Warning, detail, hint))
        }
    }
}

/// Endpoints whose settings cannot be read, and those that the key of today has not sealed.
fn secrets(connection: &Connection, vault: &Vault) -> rusqlite::Result<[Finding; 2]> {
    let (mut unreadable, mut outdated, mut all) = (Vec::new(), Vec::new(), 0);
    let mut statement = connection.prepare_cached(sql!("diagnose_endpoints"))?;
    let mut endpoints = statement.query([])?;
    while let Some(row) = endpoints.next()? {
        let id = EndpointId::from_uuid(row.get("id")?);
        let (tenant, settings): (String, String) = (row.get("tenant")?, row.get("settings")?);
        all += 1;
        if EndpointSettings::from_stored(&settings, vault.keyring(), &tenant).is_err() {
            unreadable.push(id);
        } else if !EndpointSettings::is_sealed_with_current_key(&settings, vault.keyring()) {
            outdated.push(id);
        }
    }
    let unreadable = if unreadable.is_empty() {
        ok("endpoint_settings", format!("the settings of {all} endpoints can be read"))
    } else {
        let detail = format!("the settings of {} cannot be read, so nothing is sent to them", named(&unreadable));
        let hint = "set the secret_key that they were encrypted with, or give them a new secret";
        bad("endpoint_settings", FindingLevel::Problem, detail, hint)
    };
    let outdated = if outdated.is_empty() {
        ok("secret_key", "all secrets that can be read are encrypted with the current secret_key".to_owned())
    } else {
        let detail = format!("the secrets of {} are encrypted with an older secret_key", named(&outdated));
        let hint = "keep the older key until `postrider migrate --reseal` has encrypted them anew";
        bad("secret_key", FindingLevel::Warning, detail, hint)
    };
    Ok([unreadable, outdated])
}

fn named(endpoints: &[EndpointId]) -> String {
    let shown: Vec<String> = endpoints.iter().take(MAX_NAMED).map(EndpointId::to_string).collect();
    let count = endpoints.len();
    let noun = if count == 1 { "endpoint" } else { "endpoints" };
    let rest = if count > MAX_NAMED { ", …" } else { "" };
    format!("{count} {noun} ({}{rest})", shown.join(", "))
}
