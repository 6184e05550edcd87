//! Claims that many race for, from several processes and in every way that there is: over HTTP, by the command line on
//! the database, and in SQL inside of somebody's transaction. Some winners never commit, and the subject is reset in
//! the middle of it all.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use postrider_conformance::wait::within;
use postrider_promises::canary;
use postrider_promises::process::PATIENCE;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::stage::{Api, Stage, measured, on_both};

const SUBJECT: &str = "plan-1";
const RACERS: usize = 50;
const GENERATIONS: u64 = 3;

on_both! {
    /// P10: one event per generation, whoever crashes, rolls back or resets meanwhile.
    of_fifty_racers_in_several_processes_one_wins_in_each_generation
}

/// How it went for a racer.
#[derive(Debug)]
enum Fate {
    /// Its event was acknowledged.
    Won(String),
    /// Somebody else had won.
    Lost,
    /// It may have won, but has never committed.
    Undone,
}

async fn of_fifty_racers_in_several_processes_one_wins_in_each_generation(stage: Stage) {
    let first = stage.serve(&["--no-dispatch"]).await;
    let second = stage.serve_again(&first.api.key, &["--no-dispatch"]).await;
    first.api.post("/v1/endpoints", &json!({ "url": "http://127.0.0.1:9/" })).await;
    let mut winners = BTreeSet::new();
    let (mut undone, mut generation) = (0, 1);
    for round in 1..=GENERATIONS {
        // Somebody is the first to claim, and everybody else comes while that is not decided.
        let holder = Holder::claim(&stage).await;
        let (won, mut is_won) = watch::channel(false);
        let mut racers = JoinSet::new();
        for number in 0..RACERS {
            let api = if number % 2 == 0 { first.api.clone() } else { second.api.clone() };
            let won = won.clone();
            let racing = race(&stage, number, api);
            racers.spawn(async move {
                let fate = racing.await;
                won.send_if_modified(|known| matches!(fate, Fate::Won(_)) && !std::mem::replace(known, true));
                fate
            });
        }
        holder.gives_up().await;
        // As soon as one has won the next generation begins, while others are still on their way.
        within("somebody wins", PATIENCE, is_won.wait_for(|won| *won)).await.unwrap();
        generation += 1;
        assert_eq!(reset(&stage, round, &first.api).await, generation, "each reset begins one generation");
        for fate in racers.join_all().await {
            match fate {
                Fate::Won(id) => assert!(winners.insert(id), "nobody wins twice"),
                Fate::Lost => {}
                Fate::Undone => undone += 1,
            }
        }
        // If nobody was late enough for the new generation, it is claimed here.
        if let Fate::Won(id) = over_http(&first.api).await {
            winners.insert(id);
        }
        generation += 1;
        assert_eq!(reset(&stage, round + 1, &first.api).await, generation);
    }
    measured("racers in all, generations, and racers that never committed", (RACERS, generation, undone));
    assert!(undone > 0, "some were aborted");
    assert_eq!(winners.len() as u64, generation - 1, "one winner in each generation that is over: {winners:?}");
    let stored = first.api.get("/v1/events?limit=250").await;
    let stored = stored["data"].as_array().unwrap();
    let ids: BTreeSet<String> = stored.iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, winners, "there is nobody else's event");
    for event in stored {
        assert_eq!(event["deliveries"].as_array().unwrap().len(), 1, "{event}");
    }
}

/// One racer, in one of the ways there are.
fn race(stage: &Stage, number: usize, api: Api) -> impl Future<Output = Fate> + Send + 'static {
    let url = stage.database.as_ref().map(|database| database.url().to_owned());
    let mut command = send(stage);
    if number % 10 == 7 && !stage.is_postgres() {
        // It ends when everything is written and nothing committed.
        command.env("POSTRIDER_FAILPOINTS", "before_commit=abort@1");
    }
    async move {
        match (number % 5, url) {
            (0 | 1, _) | (3, None) => over_http(&api).await,
            (2, _) | (_, None) => by_command(command).await,
            (_, Some(url)) => in_sql(&url, number % 10 >= 5).await,
        }
    }
}

async fn over_http(api: &Api) -> Fate {
    let event =
        json!({ "type": "plan.done", "payload": { "canary": canary::PAYLOAD }, "once": { "subject": SUBJECT } });
    loop {
        let (status, answer) = api.ask(api.request(Method::POST, "/v1/events").json(&event)).await;
        match (status, answer["claimed"].as_bool()) {
            (202, Some(true)) => return Fate::Won(answer["id"].as_str().unwrap().to_owned()),
            (200, Some(false)) => return Fate::Lost,
            // Whoever holds the claim takes long to decide; nothing was written, and one may come again.
            (503, _) => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => panic!("{status} {answer}"),
        }
    }
}

fn send(stage: &Stage) -> Command {
    let payload = json!({ "canary": canary::PAYLOAD }).to_string();
    stage.workplace.command(["send", "plan.done", "--once", SUBJECT, "--data", &payload, "--json"])
}

async fn by_command(command: Command) -> Fate {
    match run(command).await {
        None => Fate::Undone,
        Some(answer) if answer["claimed"] == true => Fate::Won(answer["id"].as_str().unwrap().to_owned()),
        Some(_) => Fate::Lost,
    }
}

/// What a command prints that succeeds, as often as it takes; nothing if it crashes.
async fn run(mut command: Command) -> Option<Value> {
    loop {
        let running = tokio::task::spawn_blocking(move || (command.output().unwrap(), command));
        let output;
        (output, command) = running.await.unwrap();
        let told = [&output.stdout[..], &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        match output.status.code() {
            Some(0) => return Some(serde_json::from_slice(&output.stdout).unwrap()),
            None => return None,
            // Whoever holds the claim takes long to decide; nothing was written, and one may come again.
            Some(_) if ["store_busy", "store_contended", "store_conflict"].iter().any(|code| told.contains(code)) => {}
            code => panic!("{code:?}: {told}"),
        }
    }
}

/// In a transaction of its own, which it commits or rolls back.
async fn in_sql(url: &str, commits: bool) -> Fate {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let statement = "select postrider.enqueue_once($1, 'plan.done', $2::text)::text";
    let payload = json!({ "canary": canary::PAYLOAD }).to_string();
    let id: Option<String> =
        sqlx::query_scalar(statement).bind(SUBJECT).bind(payload).fetch_one(&mut *transaction).await.unwrap();
    if !commits {
        transaction.rollback().await.unwrap();
        return Fate::Undone;
    }
    transaction.commit().await.unwrap();
    match id {
        Some(id) => Fate::Won(typed(&id)),
        None => Fate::Lost,
    }
}

/// An event's id as the API shows it.
fn typed(uuid: &str) -> String {
    postrider::EventId::from_uuid(uuid.parse().unwrap()).to_string()
}

/// Somebody who has claimed the subject, and never commits.
enum Holder {
    Transaction(Box<PgConnection>),
    /// Crashed already: on SQLite nobody else gets that far while a transaction is open.
    Crashed,
}

impl Holder {
    async fn claim(stage: &Stage) -> Self {
        if let Some(database) = &stage.database {
            let mut connection = PgConnection::connect(database.url()).await.unwrap();
            sqlx::query("begin").execute(&mut connection).await.unwrap();
            let statement = "select postrider.enqueue_once($1, 'plan.done', '{}'::text)";
            let id: Option<uuid::Uuid> =
                sqlx::query_scalar(statement).bind(SUBJECT).fetch_one(&mut connection).await.unwrap();
            assert!(id.is_some(), "it is the first");
            return Self::Transaction(Box::new(connection));
        }
        let mut command = send(stage);
        command.env("POSTRIDER_FAILPOINTS", "before_commit=abort@1");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(output.status.code(), None, "it ended before it could commit");
        Self::Crashed
    }

    async fn gives_up(self) {
        if let Self::Transaction(mut connection) = self {
            let waiting = "select count(*) from pg_stat_activity
                           where datname = current_database() and wait_event_type = 'Lock'";
            let somebody_waits = async {
                while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *connection).await.unwrap() == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            within("somebody waits for the claim", PATIENCE, somebody_waits).await;
            sqlx::query("rollback").execute(&mut *connection).await.unwrap();
        }
    }
}

/// Begins the next generation, in each of the ways in turn, and returns its number.
async fn reset(stage: &Stage, turn: u64, api: &Api) -> u64 {
    match (turn % 3, &stage.database) {
        (1, Some(database)) => {
            let mut connection = PgConnection::connect(database.url()).await.unwrap();
            let generation: i64 = sqlx::query_scalar("select postrider.reset_once($1)")
                .bind(SUBJECT)
                .fetch_one(&mut connection)
                .await
                .unwrap();
            generation.unsigned_abs()
        }
        (2, _) => {
            let command = stage.workplace.command(["once", "reset", SUBJECT, "--json"]);
            run(command).await.unwrap()["generation"].as_u64().unwrap()
        }
        _ => {
            let (status, claim) = api.ask(api.request(Method::POST, &format!("/v1/once/{SUBJECT}/reset"))).await;
            assert_eq!(status, 200, "{claim}");
            claim["generation"].as_u64().unwrap()
        }
    }
}
