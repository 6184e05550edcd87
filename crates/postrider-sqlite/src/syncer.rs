//! Brings commits to the disk, beside the writer.
//!
//! SQLite can sync its log within each commit, and then the writer waits for the disk with all that it could do
//! meanwhile. So it commits without (`synchronous = normal`, under which the file is never damaged, and a loss of power
//! undoes the last commits and nothing else), and hands what it has committed over to this thread, which syncs the log and
//! only then answers. Several commits that came meanwhile share a sync. Nobody outside hears of anything that
//! could still be undone:
//!
//! - What is [`Durability::Synced`] is answered after a sync that began when its commit had ended.
//! - What is [`Durability::Ordered`] needs no sync, but waits for those before it. A claim may have found an event that
//!   is not on the disk yet; whoever gets that claim would send what was never there.
//! - For what is [`Durability::Beside`] nobody waits but its own caller: the result of an attempt that is lost with the
//!   power is one that was never reported, and its delivery is attempted again whatever was claimed after it.
//!
//! The log is synced through a handle of our own. SQLite's locks are on other files, so opening and closing it
//! disturbs none of them, and [`InPlace`](crate::in_place::InPlace) sees to it that it is the same file. A log that SQLite begins
//! anew was brought into the database, both synced, by the checkpoint before.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use postrider::{StoreError, StoreErrorCode};

use crate::wake::Wake;

/// How many groups are committed and not yet answered at most, before the writer waits for the disk after all.
const MAX_UNSYNCED: usize = 16;

/// What a loss of power may do to work that was reported as done. A crash of the process loses neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// Undo it, together with all that came after. For claims and renewals: what they grant ends with the process anyway.
    Ordered,
    /// Nothing: it is on the disk. But what is only ordered need not wait for it. For the results of attempts.
    Beside,
    /// Nothing: it is on the disk, and so is whatever was reported after it.
    Synced,
}

/// The write-ahead log, as a file that can be synced.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: OnceLock<File>,
    syncs: AtomicU64,
}

impl Log {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: OnceLock::new(), syncs: AtomicU64::new(0) }
    }

    /// How often it was synced.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// To be called after a commit: the log is there from the first one on.
    fn sync(&self) -> io::Result<()> {
        let file = if let Some(file) = self.file.get() {
            file
        } else {
            let file = File::open(&self.path)?;
            // That the log is there at all is written in its folder.
            #[cfg(unix)]
            if let Some(folder) = self.path.parent() {
                File::open(folder)?.sync_all()?;
            }
            self.file.get_or_init(|| file)
        };
        file.sync_data()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Something that is answered when it is known whether it lasts.
pub(crate) trait Waiting: Send {
    fn answer(self: Box<Self>, lasts: Result<(), &StoreError>);
}

/// A group that is committed, and not yet answered.
pub(crate) struct Committed {
    pub(crate) durability: Durability,
    pub(crate) waiting: Vec<Box<dyn Waiting>>,
    /// Something became ready: waiting dispatchers are woken.
    pub(crate) made_ready: bool,
    /// Something was announced: those who follow are woken.
    pub(crate) announced: bool,
}

impl Committed {
    fn answer(self, wake: &Wake, lasts: Result<(), &StoreError>) {
        #[cfg(feature = "failpoints")]
        postrider::failpoint::reached(postrider::failpoint::AFTER_COMMIT);
        // Also when it is not known whether it lasts: it is there now.
        if self.made_ready {
            wake.ready.happened();
        }
        if self.announced {
            wake.announced.happened();
        }
        for waiting in self.waiting {
            waiting.answer(lasts);
        }
    }
}

/// The way to the thread. It ends when this is dropped, after it has answered all.
pub(crate) struct Syncer {
    sender: SyncSender<Committed>,
    /// How many groups are not answered yet that others wait for.
    waited_for: Arc<AtomicUsize>,
    wake: Arc<Wake>,
}

impl Syncer {
    /// Starts the thread.
    pub(crate) fn start(log: Arc<Log>, wake: Arc<Wake>) -> (Self, JoinHandle<()>) {
        Self::start_with(move || log.sync(), wake)
    }

    fn start_with(sync: impl FnMut() -> io::Result<()> + Send + 'static, wake: Arc<Wake>) -> (Self, JoinHandle<()>) {
        let (sender, receiver) = sync_channel(MAX_UNSYNCED);
        let waited_for = Arc::new(AtomicUsize::new(0));
        let (shared, waker) = (Arc::clone(&waited_for), Arc::clone(&wake));
        let thread = thread::Builder::new()
            .name("postrider-sync".to_owned())
            .spawn(move || run(&receiver, sync, &shared, &waker))
            .expect("the operating system can start a thread");
        (Self { sender, waited_for, wake }, thread)
    }

    /// Answers a group when it may be answered: at once, or after the disk.
    pub(crate) fn answer(&self, group: Committed) {
        if group.durability == Durability::Ordered && self.waited_for.load(Ordering::Acquire) == 0 {
            group.answer(&self.wake, Ok(()));
            return;
        }
        if group.durability == Durability::Synced {
            self.waited_for.fetch_add(1, Ordering::AcqRel);
        }
        self.sender.send(group).expect("the thread goes on for as long as somebody can send");
    }
}

fn run(
    receiver: &Receiver<Committed>,
    mut sync: impl FnMut() -> io::Result<()>,
    waited_for: &AtomicUsize,
    wake: &Wake,
) {
    while let Ok(first) = receiver.recv() {
        let groups: Vec<Committed> = std::iter::once(first).chain(receiver.try_iter().take(MAX_UNSYNCED)).collect();
        let needs_disk = groups.iter().any(|group| group.durability > Durability::Ordered);
        let synced = if needs_disk { sync().map_err(|error| not_synced(&error)) } else { Ok(()) };
        for group in groups {
            let is_waited_for = group.durability == Durability::Synced;
            group.answer(wake, synced.as_ref().copied());
            if is_waited_for {
                waited_for.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

fn not_synced(error: &io::Error) -> StoreError {
    let message = format!(
        "the log could not be brought to the disk: {error}; what was written may be lost with the power, and may be kept: \
         look at the disk, and try again"
    );
    StoreError::new(StoreErrorCode::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    struct Caller(&'static str, mpsc::Sender<(&'static str, bool)>);

    impl Waiting for Caller {
        fn answer(self: Box<Self>, lasts: Result<(), &StoreError>) {
            self.1.send((self.0, lasts.is_ok())).unwrap();
        }
    }

    /// A disk that takes its time, and callers who write down when they are answered.
    struct Stage {
        syncer: Syncer,
        /// Told when a sync begins.
        began: mpsc::Receiver<()>,
        /// Lets a sync end.
        end: mpsc::Sender<io::Result<()>>,
        answers: mpsc::Receiver<(&'static str, bool)>,
        caller: mpsc::Sender<(&'static str, bool)>,
        thread: JoinHandle<()>,
    }

    impl Stage {
        fn new() -> Self {
            let ((starting, began), (end, ending)) = (mpsc::channel(), mpsc::channel());
            let disk = move || {
                starting.send(()).unwrap();
                ending.recv().unwrap()
            };
            let (syncer, thread) = Syncer::start_with(disk, Arc::new(Wake::default()));
            let (caller, answers) = mpsc::channel();
            Self { syncer, began, end, answers, caller, thread }
        }

        fn commit(&self, name: &'static str, durability: Durability) {
            let waiting: Vec<Box<dyn Waiting>> = vec![Box::new(Caller(name, self.caller.clone()))];
            self.syncer.answer(Committed { durability, waiting, made_ready: false, announced: false });
        }

        fn answered(&self) -> (&'static str, bool) {
            self.answers.recv_timeout(PATIENCE).unwrap()
        }

        fn nobody_is_answered(&self) -> bool {
            self.answers.try_recv().is_err()
        }
    }

    #[test]
    fn what_must_be_on_the_disk_is_answered_when_it_is() {
        let stage = Stage::new();
        stage.commit("enqueue", Durability::Synced);
        stage.began.recv_timeout(PATIENCE).unwrap();
        assert!(stage.nobody_is_answered());
        stage.end.send(Ok(())).unwrap();
        assert_eq!(stage.answered(), ("enqueue", true));
    }

    #[test]
    fn a_claim_waits_for_no_disk_but_for_what_was_committed_before_it() {
        let stage = Stage::new();
        stage.commit("alone", Durability::Ordered);
        assert_eq!(stage.answered(), ("alone", true));
        assert!(stage.began.try_recv().is_err(), "nothing needed the disk");

        stage.commit("enqueue", Durability::Synced);
        stage.began.recv_timeout(PATIENCE).unwrap();
        stage.commit("claim", Durability::Ordered);
        assert!(stage.nobody_is_answered(), "it may have found what is not on the disk yet");
        stage.end.send(Ok(())).unwrap();
        assert_eq!([stage.answered(), stage.answered()], [("enqueue", true), ("claim", true)]);
        assert!(stage.began.try_recv().is_err(), "for the claim there was no second sync");
    }

    #[test]
    fn a_claim_does_not_wait_for_the_results_before_it() {
        let stage = Stage::new();
        stage.commit("settle", Durability::Beside);
        stage.began.recv_timeout(PATIENCE).unwrap();
        stage.commit("claim", Durability::Ordered);
        assert_eq!(stage.answered(), ("claim", true));
        assert!(stage.nobody_is_answered(), "the result itself is not on the disk yet");
        stage.end.send(Ok(())).unwrap();
        assert_eq!(stage.answered(), ("settle", true));
    }

    #[test]
    fn what_is_committed_during_a_sync_has_the_next_one_together() {
        let stage = Stage::new();
        stage.commit("first", Durability::Synced);
        stage.began.recv_timeout(PATIENCE).unwrap();
        stage.commit("second", Durability::Synced);
        stage.commit("third", Durability::Synced);
        stage.end.send(Ok(())).unwrap();
        assert_eq!(stage.answered(), ("first", true));
        stage.began.recv_timeout(PATIENCE).unwrap();
        assert!(stage.nobody_is_answered(), "a sync that had begun before says nothing of it");
        stage.end.send(Ok(())).unwrap();
        assert_eq!([stage.answered(), stage.answered()], [("second", true), ("third", true)]);
    }

    #[test]
    fn a_disk_that_fails_is_told_to_all_who_relied_on_it() {
        let stage = Stage::new();
        stage.commit("first", Durability::Synced);
        stage.began.recv_timeout(PATIENCE).unwrap();
        stage.end.send(Err(io::Error::other("the disk is gone"))).unwrap();
        assert_eq!(stage.answered(), ("first", false));
        stage.commit("second", Durability::Synced);
        stage.began.recv_timeout(PATIENCE).unwrap();
        stage.end.send(Ok(())).unwrap();
        assert_eq!(stage.answered(), ("second", true));
    }

    #[test]
    fn everybody_is_answered_before_it_ends() {
        let Stage { syncer, began, end, answers, caller, thread } = Stage::new();
        let waiting: Vec<Box<dyn Waiting>> = vec![Box::new(Caller("last", caller))];
        syncer.answer(Committed { durability: Durability::Synced, waiting, made_ready: false, announced: false });
        drop(syncer);
        began.recv_timeout(PATIENCE).unwrap();
        end.send(Ok(())).unwrap();
        assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), ("last", true));
        thread.join().unwrap();
    }
}
