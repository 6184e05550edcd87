//! P2: enqueuers that die before and after their commit.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use postrider_promises::evidence::Source;
use postrider_promises::fleet::{Arena, Role, Start, terms};
use postrider_promises::inbox::{Inbox, Reply};
use postrider_promises::load::{Fate, Way, number_of, payload};

use crate::must_hold;

async fn kind_inbox() -> Inbox {
    Inbox::open(|_, _| Reply::status(200)).await
}

/// Where an enqueuer dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dies {
    BeforeCommit,
    AfterCommit,
}

/// `psql`, killed in the midst of a session.
fn by_psql(arena: &Arena, number: u64, dies: Dies) {
    let Source::Postgres(url) = &arena.source else { panic!("on Postgres") };
    // What the driver adds to the URL is not for others.
    let url = url.split('?').next().unwrap();
    let mut command = Command::new("psql");
    command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = command.spawn().expect("psql is installed");
    let mut input = psql.stdin.take().unwrap();
    let mut output = BufReader::new(psql.stdout.take().unwrap());
    writeln!(input, "begin; insert into trial.witness values ({number});").unwrap();
    let (payload, destination) = (payload(number), arena.load.destination());
    writeln!(input, "select postrider.enqueue('load.made', $${payload}$$::text, '{destination}') is not null;")
        .unwrap();
    if dies == Dies::AfterCommit {
        writeln!(input, "commit;").unwrap();
    }
    writeln!(input, "\\echo reached").unwrap();
    input.flush().unwrap();
    let mut line = String::new();
    while !line.starts_with("reached") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "psql ended by itself");
    }
    psql.kill().unwrap();
    psql.wait().unwrap();
}

/// `postrider send` straight on the file, which ends at the writer's commit.
fn by_send(arena: &Arena, number: u64, dies: Dies) {
    let place = if dies == Dies::BeforeCommit { "before_commit=abort@1" } else { "after_commit=abort@1" };
    let payload = payload(number);
    let mut command =
        arena.workplace().command(["send", "load.made", "--data", &payload, "--to", arena.load.destination()]);
    let output = command.env("POSTRIDER_FAILPOINTS", place).output().unwrap();
    assert_eq!(output.status.code(), None, "it ended at {place}");
}

async fn all_that_committed_arrives(arena: &Arena, ways: &[Way], enqueue: impl Fn(u64, Dies)) {
    let mut committed = Vec::new();
    for way in ways.iter().cycle().take(6) {
        let number = arena.load.begin(*way);
        let dies = if number.is_multiple_of(2) { Dies::BeforeCommit } else { Dies::AfterCommit };
        enqueue(number, dies);
        let fate = if dies == Dies::BeforeCommit { Fate::RolledBack } else { Fate::Acknowledged };
        arena.load.settle(number, fate);
        committed.extend((dies == Dies::AfterCommit).then_some(number));
    }
    let dispatcher = arena.start(Role::Dispatch, Start::default());
    arena.all_settled().await;
    arena.terminate(dispatcher).await;
    let evidence = arena.evidence().await;
    must_hold(&postrider_promises::checker::judge(&evidence));
    let mut stored: Vec<u64> =
        evidence.rows.events.iter().filter_map(|event| number_of(event.payload.as_bytes())).collect();
    stored.sort_unstable();
    assert_eq!(stored, committed);
}

#[tokio::test]
async fn what_a_killed_caller_had_committed_is_there_and_nothing_else_on_postgres() {
    let arena = Arena::on_postgres(kind_inbox().await, terms()).await;
    all_that_committed_arrives(&arena, &[Way::Transaction], |number, dies| by_psql(&arena, number, dies)).await;
}

#[tokio::test]
async fn what_a_killed_caller_had_committed_is_there_and_nothing_else_on_sqlite() {
    let arena = Arena::on_sqlite(kind_inbox().await, terms()).await;
    all_that_committed_arrives(&arena, &[Way::Request], |number, dies| by_send(&arena, number, dies)).await;
}
