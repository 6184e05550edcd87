//! A small disk, and what happens when it is full.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use postrider_conformance::receiver::Receiver;
use postrider_promises::cluster::Cluster;
use postrider_promises::process::PATIENCE;
use tokio::time::Instant;

use crate::books::{Ledger, balance, integrity};
use crate::stage::{Api, measured, serve, workplace};

/// A file system of its own, gone with this value.
pub(crate) struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    pub(crate) fn new(megabytes: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("postrider-disk.").tempdir_in("/tmp").unwrap();
        let options = format!("size={megabytes}m,mode=755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        let mounted = mounted.expect("there is a command `mount`");
        assert!(
            mounted.status.success(),
            "a small file system is needed for this test, and this account or container may not mount one (run it as \
             root, in a container with CAP_SYS_ADMIN): {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Fills it, but for so many bytes.
    pub(crate) fn fill_but(&self, bytes: u64) {
        let mut filler = std::fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0xff; 16 * 1024]).is_ok() {}
        let length = filler.metadata().unwrap().len();
        filler.set_len(length.saturating_sub(bytes)).unwrap();
    }

    /// Takes away again what filled it.
    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Nothing can be written any more, whoever asks.
    pub(crate) fn make_read_only(&self) {
        let done = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Whoever still uses it loses it with its last open file.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).output();
    }
}

/// Enqueues large events until one is refused, and returns the ids of the others.
async fn until_refused(api: &Api, receiver: &Receiver, bytes: usize) -> Vec<String> {
    let filling = "f".repeat(bytes);
    let deadline = Instant::now() + PATIENCE;
    let mut ids = Vec::new();
    loop {
        assert!(Instant::now() < deadline, "{} were taken, and none refused", ids.len());
        let answer = api.try_enqueue(&receiver.url(), None, &filling).await.unwrap();
        if answer.is_success() {
            ids.push(answer.id());
        } else {
            answer.must_be_unavailable(&["store_full"]);
            return ids;
        }
    }
}

/// P26: the disk of Postgres is full. Whoever enqueues is told so, nothing that was acknowledged is lost, and work goes
/// on by itself when there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_postgres_is_told_and_recovered_from() {
    let disk = SmallDisk::new(192);
    let cluster = Cluster::start_in(disk.path(), &["max_wal_size=48MB", "min_wal_size=32MB", "shared_buffers=16MB"]);
    let receiver = Receiver::answering(204).await;
    let server = serve(&workplace(&cluster.url()), &[]).await;
    let mut acknowledged: Vec<String> = Vec::new();
    for _ in 0..10 {
        acknowledged.push(server.api.enqueue(&receiver.url(), None).await.id());
    }
    // Little, so that it is used up before the log needs another segment: for want of that the server would stop.
    disk.fill_but(2 * 1024 * 1024);
    acknowledged.extend(until_refused(&server.api, &receiver, 100_000).await);
    disk.make_room();
    let since = Instant::now();
    acknowledged.push(server.api.enqueue(&receiver.url(), None).await.id());
    measured("acknowledged again after Postgres' disk was full", since.elapsed());
    let entries = Ledger::Postgres(cluster.url()).until_delivered().await;
    measured("everything delivered after Postgres' disk was full", since.elapsed());
    balance(&acknowledged.into_iter().collect(), &entries, &receiver);
    server.running.stopped().await;
    drop(cluster);
}

/// P26: the same on SQLite, where the file must be sound as well, also while there is no room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_a_file_is_told_and_recovered_from() {
    let disk = SmallDisk::new(24);
    let file = disk.path().join("postrider.db");
    let receiver = Receiver::answering(204).await;
    let server = serve(&workplace(&format!("sqlite://{}", file.display())), &[]).await;
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..3 {
        for _ in 0..10 {
            acknowledged.push(server.api.enqueue(&receiver.url(), None).await.id());
        }
        disk.fill_but(512 * 1024);
        acknowledged.extend(until_refused(&server.api, &receiver, 20_000).await);
        assert_eq!(server.api.get("/v1/deliveries").await.status, 200, "reading needs no room");
        let stored = Ledger::sqlite(&file).entries().await.len();
        assert_eq!(stored, acknowledged.len(), "in round {round}, what was refused is not there");
        disk.make_room();
        let since = Instant::now();
        server.api.until_ready().await;
        acknowledged.push(server.api.enqueue(&receiver.url(), None).await.id());
        measured("acknowledged again after the file's disk was full", since.elapsed());
        Ledger::sqlite(&file).until_delivered().await;
        measured("everything delivered after the file's disk was full", since.elapsed());
    }
    let entries = Ledger::sqlite(&file).until_delivered().await;
    balance(&acknowledged.into_iter().collect(), &entries, &receiver);
    server.running.stopped().await;
    assert_eq!(integrity(&file), "ok");
}

/// P26: a process is killed while its disk is full, and another one goes on with what it left.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_on_a_full_disk_leaves_a_sound_file() {
    let disk = SmallDisk::new(24);
    let file = disk.path().join("postrider.db");
    let place = workplace(&format!("sqlite://{}", file.display()));
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &[]).await;
    let mut acknowledged = vec![server.api.enqueue(&receiver.url(), None).await.id()];
    disk.fill_but(512 * 1024);
    acknowledged.extend(until_refused(&server.api, &receiver, 20_000).await);
    server.running.killed().await;
    disk.make_room();
    let server = serve(&place, &[]).await;
    acknowledged.push(server.api.enqueue(&receiver.url(), None).await.id());
    let entries = Ledger::sqlite(&file).until_delivered().await;
    balance(&acknowledged.into_iter().collect(), &entries, &receiver);
    server.running.stopped().await;
    assert_eq!(integrity(&file), "ok");
}
