//! What telling of a change adds to the transaction that makes it, on Postgres: against the change alone, and against the
//! change with an insert of the same bytes into a plain table, which is the least that any outbox does.

use std::time::Instant;

use postrider::{Admission, NewEvent};
use postrider_postgres::PostgresStore;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

use super::{drain, median};
use crate::Failure;
use crate::lab::{Kind, Lab, loopback, payload, per_second};
use crate::report::{Report, grouped};

const CONNECTIONS: [u32; 2] = [1, 16];
/// Transactions of each connection that are not measured: statements are prepared.
const WARM_UP: usize = 10;
const ORDERS: usize = 10_000;
const CHANGE: &str = "update orders set status = 'paid' where id = $1";
const PLAIN: &str = "insert into outbox (type, url, payload) values ($1, $2, $3)";

/// What a transaction does besides the change.
#[derive(Debug, Clone)]
enum Beside {
    Nothing,
    /// An insert into a plain table.
    Insert,
    /// An event.
    Event(Box<PostgresStore>),
}

pub(crate) async fn run(transactions: usize, turns: usize) -> Result<Report, Failure> {
    let what = format!(
        "{} transactions that change a row: alone, with a plain insert of 1 kB, and with an event of 1 kB, on Postgres",
        grouped(transactions)
    );
    let mut report = Report::new("enqueue", what);
    let mut lab = Lab::new(Kind::Postgres, 1).await?;
    prepare(&lab).await?;
    let mut meter = lab.meter()?;
    meter.watch("callers", std::process::id())?;
    let mut events = 0;
    for connections in CONNECTIONS {
        let pool = PgPoolOptions::new().min_connections(connections).max_connections(connections);
        let pool = pool.test_before_acquire(false).connect(&lab.database).await?;
        let admission = Admission { destinations: loopback()?, ..Admission::default() };
        let store = PostgresStore::from_pool(pool.clone()).with_admission(admission);
        let ways = [Beside::Nothing, Beside::Insert, Beside::Event(Box::new(store))];
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        let url = &lab.sink.urls[0];
        let warm_up = WARM_UP * connections as usize;
        for beside in &ways {
            measure(&pool, beside, url, connections as usize, warm_up).await?;
        }
        events += warm_up + transactions * turns;
        for _ in 0..turns {
            for (beside, rates) in ways.iter().zip(&mut rates) {
                rates.push(measure(&pool, beside, url, connections as usize, transactions).await?);
            }
        }
        let [alone, insert, event] = rates.map(median);
        let name = format!("{connections} at a time");
        report.add(format!("{name}: the change alone"), alone, "transactions/s");
        report.add(format!("{name}: with a plain insert"), insert, "transactions/s");
        report.add(format!("{name}: with an event"), event, "transactions/s");
        report.add(format!("{name}: of the change alone"), event / alone, "rate with an event, as a ratio");
        report.add(format!("{name}: of the plain insert"), event / insert, "rate with an event, as a ratio");
        let added = |rate: f64| (1.0 / rate - 1.0 / alone) * 1e6 * f64::from(connections);
        report.add(format!("{name}: a plain insert adds"), added(insert), "microseconds to a transaction");
        report.add(format!("{name}: an event adds"), added(event), "microseconds to a transaction");
    }
    report.add_costs("all transactions", &meter.read()?, events * 3);
    // Every event of a transaction that was committed is delivered, and once.
    let drained = drain(&mut lab, events, &[&["dispatch"]], &mut report).await?;
    report.add_costs("delivered afterwards", &drained.costs, events);
    Ok(report)
}

async fn prepare(lab: &Lab) -> Result<(), Failure> {
    let pool = lab.pool.as_ref().ok_or("Postgres has a pool")?;
    let statements = [
        format!("create table orders as select id, 'new' as status from generate_series(1, {ORDERS}) id"),
        "alter table orders add primary key (id)".to_owned(),
        "create table outbox (id bigint generated always as identity primary key, type text not null, \
         url text not null, payload bytea not null, created_at timestamptz not null default now())"
            .to_owned(),
    ];
    for statement in statements {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(pool).await?;
    }
    lab.rest().await
}

/// Transactions per second.
async fn measure(
    pool: &PgPool,
    beside: &Beside,
    url: &str,
    connections: usize,
    transactions: usize,
) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..connections {
        let (pool, beside, url) = (pool.clone(), beside.clone(), url.to_owned());
        workers.spawn(async move {
            let body = payload(1000);
            for number in (worker..transactions).step_by(connections) {
                let mut transaction = pool.begin().await?;
                let id = i32::try_from(number % ORDERS + 1)?;
                sqlx::query(CHANGE).bind(id).execute(&mut *transaction).await?;
                match &beside {
                    Beside::Nothing => {}
                    Beside::Insert => {
                        let insert = sqlx::query(PLAIN).bind("order.paid").bind(&url).bind(&body[..]);
                        insert.execute(&mut *transaction).await?;
                    }
                    Beside::Event(store) => {
                        let event = NewEvent::new("order.paid", body.clone()).to(&url);
                        store.enqueue_in(&mut transaction, event).await?;
                    }
                }
                transaction.commit().await?;
            }
            Ok::<(), Failure>(())
        });
    }
    for result in workers.join_all().await {
        result?;
    }
    Ok(per_second(transactions, began.elapsed()))
}
