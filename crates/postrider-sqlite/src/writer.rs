//! The writer thread, and group commit.
//!
//! A commit costs an `fsync`, and SQLite has one writer at a time. So all writes of a store go to one thread. It takes
//! whatever is waiting, up to a bound, runs each piece of work in a **savepoint** of its own inside one
//! `BEGIN IMMEDIATE`, and commits once; all are answered only then. Work that fails rolls its savepoint back, and its neighbours
//! do not notice. Work that panics does the same, and the panic goes on in the caller. Work without neighbours needs no
//! savepoint: what it wrote is the transaction. When the commit itself fails, or when SQLite gives the whole transaction
//! up (a full disk can make it do so), everyone who took part gets the error.
//!
//! The disk is waited for by another thread ([`syncer`](crate::syncer)), which answers then: the next group runs meanwhile.
//! A group whose work is all [`Durability::Ordered`] needs no `fsync`. The log stays in order: the next one that is synced
//! brings it to the disk as well, so nothing later can survive a loss of power without it.
//!
//! The threads end after the last handle was dropped, and what was queued is done and answered.

use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use postrider::{StoreError, StoreErrorCode};
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::clock::{Clock, Micros, Mint};
use crate::error::{again, store_error, writer_is_gone};
use crate::in_place::InPlace;
use crate::remembered::Remembered;
use crate::syncer::{Committed, Durability, Log, Syncer, Waiting};
use crate::wake::Wake;

/// At most so many pieces of work share a commit, so that the first of them does not wait for long.
const MAX_GROUP: usize = 256;
/// At most so many wait in the queue; further callers wait before it.
const MAX_QUEUED: usize = 1024;

/// Every savepoint of ours begins with this, and callers' code may not touch such a one.
const SAVEPOINT_PREFIX: &str = "postrider_";

/// What work on the writer thread has at hand.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// The one instant of the work under way.
    pub(crate) now: Micros,
    /// Something became ready, or may have: waiting dispatchers are woken when it is answered.
    pub(crate) made_ready: bool,
    /// Something was announced: those who follow are woken when it is answered.
    pub(crate) announced: bool,
    /// Workers that claimed through this store: what they hold was not left behind by an earlier process.
    pub(crate) claimers: HashSet<String>,
    pub(crate) remembered: Remembered,
    pub(crate) wake: Arc<Wake>,
    in_place: Arc<InPlace>,
    clock: Arc<Clock>,
    mint: Mint,
    data_version: i64,
    callers_code_runs: Arc<AtomicBool>,
    /// The work under way has the transaction for itself.
    alone: bool,
}

impl Session {
    /// A new identifier of this moment.
    pub(crate) fn mint(&mut self) -> Uuid {
        self.mint.mint(&self.clock, self.now)
    }

    /// Runs code of a caller's own, which may use the connection but may not end the transaction it runs in.
    pub(crate) fn guarded<T>(&mut self, callers_code: impl FnOnce(&mut Self) -> T) -> T {
        self.with_guard(true, callers_code)
    }

    /// Runs our own code in the midst of a caller's.
    pub(crate) fn unguarded<T>(&mut self, our_code: impl FnOnce(&mut Self) -> T) -> T {
        self.with_guard(false, our_code)
    }

    fn with_guard<T>(&mut self, guard: bool, code: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.callers_code_runs.swap(guard, Ordering::SeqCst);
        // A panic must not leave the guard as it was set for the code that panicked.
        let result = catch_unwind(AssertUnwindSafe(|| code(self)));
        self.callers_code_runs.store(before, Ordering::SeqCst);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs one piece of work of a group, so that nothing is left of it if it fails or panics.
    fn run_in_group<T, E: From<StoreError>>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        if !self.alone {
            return self.in_savepoint(&Savepoint::WORK, work);
        }
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(_)) if self.connection.is_autocommit() => Err(transaction_was_given_up().into()),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.give_up();
                Err(error)
            }
            Err(panic) => {
                self.give_up();
                resume_unwind(panic)
            }
        }
    }

    fn give_up(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.control("rollback")
        {
            tracing::error!(code = %error.code, message = %error.message, "a transaction could not be rolled back");
        }
    }

    /// Runs work in a savepoint, which is kept if the work succeeds, and rolled back if it fails or panics.
    pub(crate) fn in_savepoint<T, E: From<StoreError>>(
        &mut self,
        name: &Savepoint,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        // A savepoint outside of a transaction would be a transaction of its own, committed by its release.
        if self.connection.is_autocommit() {
            return Err(transaction_was_given_up().into());
        }
        self.control(name.begin)?;
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(Ok(_)) if self.connection.is_autocommit() => Err(transaction_was_given_up().into()),
            Ok(Ok(value)) => match self.control(name.keep) {
                Ok(()) => Ok(value),
                Err(error) => {
                    self.roll_back(name);
                    Err(error.into())
                }
            },
            Ok(Err(error)) => {
                self.roll_back(name);
                Err(error)
            }
            Err(panic) => {
                self.roll_back(name);
                resume_unwind(panic)
            }
        }
    }

    fn roll_back(&self, name: &Savepoint) {
        // Without a transaction there is no savepoint either: SQLite gave it all up, and the group is told so.
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.control(name.undo).and_then(|()| self.control(name.keep)) {
            // What the work wrote must not be committed with its neighbours: give the whole group up.
            tracing::error!(code = %error.code, message = %error.message, "a savepoint could not be rolled back");
            let _ = self.control("rollback");
        }
    }

    /// Begins the transaction of a group, with a look at what other processes have done before it.
    fn begin(&mut self) -> Result<(), StoreError> {
        self.control("begin immediate")?;
        self.look_for_foreign_commits().inspect_err(|_| {
            let _ = self.control("rollback");
        })
    }

    /// Commits, unless it would be lost.
    fn commit(&self) -> Result<(), StoreError> {
        self.in_place.check()?;
        self.control("commit")
    }

    fn control(&self, statement: &'static str) -> Result<(), StoreError> {
        let run = || self.connection.prepare_cached(statement)?.execute([]);
        run().map(drop).map_err(|error| store_error(statement, error))
    }

    /// Whether another process has committed since this was last asked. Our own commits do not count.
    fn look_for_foreign_commits(&mut self) -> Result<(), StoreError> {
        let version = data_version(&self.connection).map_err(|error| store_error("look for other commits", error))?;
        if version != self.data_version {
            self.data_version = version;
            self.wake.something_happened();
        }
        Ok(())
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("pragma data_version")?.query_row([], |row| row.get(0))
}

/// The statements of one savepoint.
pub(crate) struct Savepoint {
    begin: &'static str,
    keep: &'static str,
    undo: &'static str,
}

impl Savepoint {
    /// Around one piece of work of a group.
    pub(crate) const WORK: Self =
        Self { begin: "savepoint postrider_work", keep: "release postrider_work", undo: "rollback to postrider_work" };
    /// Around an enqueue in a caller's transaction.
    pub(crate) const ENQUEUE: Self = Self {
        begin: "savepoint postrider_enqueue",
        keep: "release postrider_enqueue",
        undo: "rollback to postrider_enqueue",
    };
}

enum Message {
    Work(Box<dyn Job>),
    Look(oneshot::Sender<()>),
}

/// One piece of work: run in a group, answered when it is known whether the group lasts.
trait Job: Waiting {
    fn durability(&self) -> Durability;
    fn run(&mut self, session: &mut Session);
}

type Outcome<T, E> = Result<Result<T, E>, Box<dyn Any + Send>>;

struct Work<F, T, E> {
    durability: Durability,
    to_do: Option<F>,
    outcome: Option<Outcome<T, E>>,
    reply: oneshot::Sender<Outcome<T, E>>,
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnOnce(&mut Session) -> Result<T, E> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, session: &mut Session) {
        let work = self.to_do.take().expect("work is run once");
        session.now = session.clock.now();
        let run = AssertUnwindSafe(|| session.run_in_group(work));
        self.outcome = Some(catch_unwind(run));
    }
}

impl<F: Send, T: Send, E: From<StoreError> + Send> Waiting for Work<F, T, E> {
    fn answer(self: Box<Self>, lasts: Result<(), &StoreError>) {
        let outcome = match (self.outcome, lasts) {
            // What failed by itself keeps its own error.
            (Some(outcome @ (Ok(Err(_)) | Err(_))), _) | (Some(outcome), Ok(())) => outcome,
            (_, Err(error)) => Ok(Err(again(error).into())),
            (None, Ok(())) => unreachable!("only work that was run is committed"),
        };
        // Whoever asked may have stopped waiting.
        let _ = self.reply.send(outcome);
    }
}

/// The way to the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    sender: Option<mpsc::Sender<Message>>,
    /// Its own, and the one that answers.
    threads: [Option<JoinHandle<()>>; 2],
}

impl Writer {
    /// Starts the thread on a connection that is ready for use.
    pub(crate) fn start(
        connection: Connection,
        in_place: Arc<InPlace>,
        log: Arc<Log>,
        clock: Arc<Clock>,
        wake: Arc<Wake>,
    ) -> rusqlite::Result<Self> {
        let callers_code_runs = Arc::new(AtomicBool::new(false));
        forbid_ending_the_transaction(&connection, Arc::clone(&callers_code_runs))?;
        let data_version = data_version(&connection)?;
        let (syncer, answering) = Syncer::start(log, Arc::clone(&wake));
        let mut session = Session {
            connection,
            now: 0,
            made_ready: false,
            announced: false,
            claimers: HashSet::new(),
            remembered: Remembered::default(),
            wake,
            in_place,
            clock,
            mint: Mint::default(),
            data_version,
            callers_code_runs,
            alone: false,
        };
        let (sender, mut receiver) = mpsc::channel(MAX_QUEUED);
        let thread = thread::Builder::new()
            .name("postrider-sqlite".to_owned())
            .spawn(move || run(&mut session, &mut receiver, &syncer))
            .expect("the operating system can start a thread");
        Ok(Self { sender: Some(sender), threads: [Some(thread), Some(answering)] })
    }

    /// Runs `work` in a group, and returns what it returned after the group's commit.
    pub(crate) async fn write<T, E>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Session) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Work(Box::new(Work { durability, to_do: Some(work), outcome: None, reply }))).await?;
        match answer.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(writer_is_gone().into()),
        }
    }

    /// Has the thread look whether another process committed something, and wake those who wait.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Look(reply)).await?;
        answer.await.map_err(|_| writer_is_gone())
    }

    async fn send(&self, message: Message) -> Result<(), StoreError> {
        let sender = self.sender.as_ref().expect("the sender is there until the writer is dropped");
        sender.send(message).await.map_err(|_| writer_is_gone())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        let threads = || self.threads.iter().flatten();
        // A caller's code, or what it returned to nobody, may have held the last handle. Then this is one of the threads.
        if threads().any(|thread| thread.thread().id() == thread::current().id()) {
            return;
        }
        for thread in self.threads.iter_mut().filter_map(Option::take) {
            let _ = thread.join();
        }
    }
}

fn transaction_was_given_up() -> StoreError {
    StoreError::new(
        StoreErrorCode::Unavailable,
        "SQLite rolled the shared transaction back, because of a full disk, an I/O error or a statement that asked for \
         it; nothing of it was kept, try again",
    )
}

/// Callers' code shares its group with others, so it may not commit or roll back. SQLite asks the first of these when a
/// statement is prepared. Savepoints of the caller's own are fine: releasing ours ends those that were forgotten.
///
/// What remains is a statement on whose conflict SQLite rolls everything back. Whatever callers' code writes after
/// that would be committed statement by statement; the second of these undoes it instead.
fn forbid_ending_the_transaction(connection: &Connection, guard: Arc<AtomicBool>) -> rusqlite::Result<()> {
    let forbidden_now = Arc::clone(&guard);
    connection.commit_hook(Some(move || guard.load(Ordering::SeqCst)))?;
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        let forbidden = match context.action {
            AuthAction::Transaction { .. } => true,
            AuthAction::Savepoint { savepoint_name, .. } => savepoint_name.starts_with(SAVEPOINT_PREFIX),
            _ => false,
        };
        if forbidden && forbidden_now.load(Ordering::SeqCst) { Authorization::Deny } else { Authorization::Allow }
    }))
}

fn run(session: &mut Session, receiver: &mut mpsc::Receiver<Message>, syncer: &Syncer) {
    while let Some(first) = receiver.blocking_recv() {
        let mut group: Vec<Box<dyn Job>> = Vec::new();
        let mut lookers = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Work(job) => group.push(job),
                Message::Look(reply) => lookers.push(reply),
            }
            next = if group.len() < MAX_GROUP { receiver.try_recv().ok() } else { None };
        }
        if !lookers.is_empty()
            && let Err(error) = session.look_for_foreign_commits()
        {
            tracing::warn!(code = %error.code, message = %error.message, "waiting dispatchers rely on their poll");
        }
        for reply in lookers {
            let _ = reply.send(());
        }
        // Claims and renewals go first and are answered without the others: deliveries wait for them, and a result that is
        // settled a moment later holds up nobody.
        let (urgent, rest): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|job| job.durability() == Durability::Ordered);
        for group in [urgent, rest] {
            if !group.is_empty() {
                run_group(session, group, syncer);
            }
        }
    }
}

fn run_group(session: &mut Session, group: Vec<Box<dyn Job>>, syncer: &Syncer) {
    session.alone = group.len() == 1;
    let durability = group.iter().map(|job| job.durability()).max().unwrap_or(Durability::Ordered);
    let mut ran: Vec<Box<dyn Job>> = Vec::with_capacity(group.len());
    let mut group = group.into_iter();
    while let Some(mut job) = group.next() {
        if session.connection.is_autocommit()
            && let Err(error) = session.begin()
        {
            // All of them: if each waited for a locked file by itself, the last would wait for very long.
            for job in std::iter::once(job).chain(group) {
                job.answer(Err(&error));
            }
            return;
        }
        job.run(session);
        ran.push(job);
        if session.connection.is_autocommit() {
            let given_up = transaction_was_given_up();
            for job in ran.drain(..) {
                job.answer(Err(&given_up));
            }
        }
    }
    if ran.is_empty() {
        return;
    }
    #[cfg(feature = "failpoints")]
    postrider::failpoint::reached(postrider::failpoint::BEFORE_COMMIT);
    match session.commit() {
        Ok(()) => syncer.answer(Committed {
            durability,
            waiting: ran.into_iter().map(|job| job as Box<dyn Waiting>).collect(),
            made_ready: std::mem::take(&mut session.made_ready),
            announced: std::mem::take(&mut session.announced),
        }),
        Err(error) => {
            if !session.connection.is_autocommit() {
                let _ = session.control("rollback");
            }
            for job in ran {
                job.answer(Err(&error));
            }
        }
    }
}
