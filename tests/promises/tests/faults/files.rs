//! What can happen to a file of SQLite while it is used, and to what lies beside it.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_conformance::receiver::Receiver;
use postrider_promises::process::{PATIENCE, Workplace};
use tokio::time::Instant;

use crate::books::{Ledger, balance, integrity};
use crate::disk::SmallDisk;
use crate::stage::{Load, measured, serve, workplace};

/// Longer than a writer waits for a locked file.
const LOCKED_FOR: Duration = Duration::from_secs(7);

fn sqlite() -> Workplace {
    workplace("sqlite://postrider.db")
}

/// P26: another process keeps the file locked for longer than anybody waits. Whoever enqueues is told that it is busy,
/// reading goes on, and so does everything else afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_somebody_keeps_locked_is_busy_and_then_not() {
    let place = sqlite();
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 4);
    load.goes_on(20).await;
    let other = rusqlite::Connection::open(place.sqlite_file()).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let since = Instant::now();
    assert_eq!(server.api.get("/v1/deliveries").await.status, 200, "reading goes on");
    load.is_refused(4).await;
    server.running.line("it is told", |line| line.contains("store_busy")).await;
    tokio::time::sleep_until(since + LOCKED_FOR).await;
    other.execute_batch("rollback").unwrap();
    let since = Instant::now();
    load.goes_on(20).await;
    measured("acknowledged again after a file was locked", since.elapsed());
    let notes = load.ends().await;
    let entries = Ledger::sqlite(&place.sqlite_file()).until_delivered().await;
    measured("everything delivered after a file was locked", since.elapsed());
    balance(&notes.ids(), &entries, &receiver);
    assert!(!notes.refusals.is_empty());
    for refusal in &notes.refusals {
        refusal.must_be_unavailable(&["store_busy"]);
    }
    server.running.stopped().await;
}

/// P1: a process that is killed again and again in the midst of its transactions leaves a sound file, with everything
/// in it that was acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_again_and_again_leaves_a_sound_file() {
    const KILLS: usize = 8;
    let place = sqlite();
    let receiver = Receiver::answering(204).await;
    let mut acknowledged = BTreeSet::new();
    for _ in 0..KILLS {
        let server = serve(&place, &[]).await;
        let load = Load::start(&server.api, &receiver.url(), 8);
        load.goes_on(20).await;
        server.running.killed().await;
        acknowledged.extend(load.breaks_off());
        assert_eq!(integrity(&place.sqlite_file()), "ok");
    }
    let server = serve(&place, &[]).await;
    let since = Instant::now();
    let entries = Ledger::sqlite(&place.sqlite_file()).until_delivered().await;
    measured("everything delivered after the last of eight kills", since.elapsed());
    let repeated = balance(&acknowledged, &entries, &receiver);
    measured("sent twice because of eight kills", repeated);
    server.running.stopped().await;
    assert_eq!(integrity(&place.sqlite_file()), "ok");
}

/// A command that must refuse to start, with an exit code and an error.
#[track_caller]
fn refuses(place: &Workplace, command: &str, exit: i32, error: &str, says: &str) {
    let output = place.command([command, "--listen", "127.0.0.1:0"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(exit), "{command}: {stderr}");
    let told = stderr.lines().find(|line| line.starts_with("error[")).unwrap_or_default();
    assert!(told.starts_with(&format!("error[{error}]: ")) && told.contains(says), "{command}: {stderr}");
}

/// P26: what is not a database, or no longer a whole one, is refused with a clear error, and left as it is.
#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let place = sqlite();
    let file = place.sqlite_file();
    let text = "this is a letter, not a database\n".repeat(200);
    std::fs::write(&file, &text).unwrap();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 1, "store_internal", "not an SQLite database");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    let place = sqlite();
    let file = place.sqlite_file();
    assert_eq!(place.run(["migrate"]).0, Some(0));
    for number in 0..20 {
        let key = number.to_string();
        place.json(["send", "fault.tried", "--to", "http://127.0.0.1:9/", "--idempotency-key", &key]);
    }
    let length = std::fs::metadata(&file).unwrap().len();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(length / 2).unwrap();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 1, "store_internal", "damaged");
    }
}

/// P26: a folder that may not be written to.
#[test]
fn a_read_only_disk_is_refused() {
    let disk = SmallDisk::new(16);
    let file = disk.path().join("postrider.db");
    let place = workplace(&format!("sqlite://{}", file.display()));
    disk.make_read_only();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 5, "store_unavailable", "can be written to");
    }
}

/// P26: the file is there and may not be written to.
#[test]
fn a_read_only_file_is_refused() {
    let disk = SmallDisk::new(16);
    let file = disk.path().join("postrider.db");
    let place = workplace(&format!("sqlite://{}", file.display()));
    assert_eq!(place.run(["migrate"]).0, Some(0));
    disk.make_read_only();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 5, "store_unavailable", "written to");
    }
}

fn lock_file(place: &Workplace) -> std::path::PathBuf {
    place.path().join("postrider.db.lock")
}

/// P3: what is written into the lock file means nothing; what counts is who has locked it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_lock_file_stops_nobody_and_a_foreign_lock_does() {
    let place = sqlite();
    let receiver = Receiver::answering(204).await;
    std::fs::write(lock_file(&place), [0xff; 5000]).unwrap();
    let server = serve(&place, &[]).await;
    let id = server.api.enqueue(&receiver.url(), None).await.id();
    let entries = Ledger::sqlite(&place.sqlite_file()).until_delivered().await;
    assert_eq!(balance(&[id].into(), &entries, &receiver), 0);
    server.running.killed().await;

    // The number of a process that is gone is in it now, and nobody holds it.
    let foreign = std::fs::File::open(lock_file(&place)).unwrap();
    foreign.lock().unwrap();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 1, "store_locked", "dispatches from this database already");
    }
    drop(foreign);
    serve(&place, &[]).await.running.stopped().await;
}

#[test]
fn a_lock_file_that_cannot_be_one_is_told() {
    let place = sqlite();
    std::fs::create_dir(lock_file(&place)).unwrap();
    for command in ["serve", "dispatch"] {
        refuses(&place, command, 5, "store_unavailable", "could not lock");
    }
}

/// P1: the file is removed under a process that runs, as a careless script does. What would be written now would be
/// gone with the process, so nothing is acknowledged any more.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_after_the_file_was_removed() {
    let place = sqlite();
    is_noticed(&place, || {
        for name in ["postrider.db", "postrider.db-wal", "postrider.db-shm"] {
            std::fs::remove_file(place.path().join(name)).unwrap();
        }
    })
    .await;
}

/// P1: the same when another file is put in its place, as a restore from a backup does.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_after_the_file_was_replaced() {
    let place = sqlite();
    is_noticed(&place, || {
        let file = place.sqlite_file();
        let backup = place.path().join("backup.db");
        std::fs::copy(&file, &backup).unwrap();
        std::fs::rename(&backup, &file).unwrap();
    })
    .await;
}

/// P1: the same when only its log is removed, in which the last commits are.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_after_the_log_was_removed() {
    let place = sqlite();
    is_noticed(&place, || std::fs::remove_file(place.path().join("postrider.db-wal")).unwrap()).await;
}

async fn is_noticed(place: &Workplace, happens: impl FnOnce()) {
    let receiver = Receiver::answering(204).await;
    let server = serve(place, &[]).await;
    server.api.enqueue(&receiver.url(), None).await.id();
    let ledger = Ledger::sqlite(&place.sqlite_file());
    ledger.until_delivered().await;
    happens();
    let refused = server.api.enqueue(&receiver.url(), None).await;
    refused.must_be_unavailable(&["store_unavailable"]);
    server.api.until_not_ready("store_unavailable").await;
    let told = |line: &str| line.contains("store_unavailable") && line.contains("removed or replaced");
    server.running.line("it is told", told).await;
    assert_eq!(receiver.request_count(), 1, "nothing that is not there is sent");
    server.running.killed().await;
}
