//! `postrider migrate`: the database's schema.

use clap::Args;
use postrider::store::{EndpointChange, Operator};
use postrider::{EndpointFilter, PageRequest};

use crate::commands::Context;
use crate::config::{Config, Flags};
use crate::database::{self, Database, Preparation};
use crate::failure::{Exit, Failure};
use crate::operator::OperatorFlag;

const EXAMPLES: &str = "\
Examples:
  postrider migrate --database postgres://postrider@db.internal/app
  POSTRIDER_SECRET_KEY=$NEW,$OLD postrider migrate --reseal
  postrider migrate --check || echo 'run postrider migrate before the new version starts'

Exit codes:
  0  the schema is current
  1  with --check: at least one migration is missing";

/// Create or update the database's schema
///
/// Safe to run from several processes at once, and when there is nothing to do. On Postgres everything is in the
/// schema `postrider`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Change nothing; exit with 1 if a migration is missing
    #[arg(long)]
    check: bool,
    /// Also encrypt the secrets of all endpoints anew with the first `secret_key`, so that older ones can be removed
    #[arg(long, conflicts_with = "check")]
    reseal: bool,
    #[command(flatten)]
    operator: OperatorFlag,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let config = context.config_without_server(Flags::new())?;
    let database = &config.database;
    let names = match database {
        Database::Sqlite(path) => {
            if arguments.check {
                database::must_exist(path)?;
            }
            let store = database::open_sqlite(path)?;
            if arguments.check { store.pending_migrations().await? } else { store.migrate().await? }
        }
        Database::Postgres(url) => {
            let store = database::connect_postgres(url).await?;
            if arguments.check { store.pending_migrations().await? } else { store.migrate().await? }
        }
    };
    if arguments.check {
        return check(&names, database, context);
    }
    let resealed = if arguments.reseal { Some(reseal(&config, &arguments.operator.operator()?).await?) } else { None };
    if context.output.json {
        let mut document = serde_json::json!({ "applied": names });
        if let Some(count) = resealed {
            document["resealed"] = count.into();
        }
        return context.output.document(&document);
    }
    for name in &names {
        context.output.line(format!("applied {name}"))?;
    }
    if let Some(count) = resealed {
        context.output.line(format!("encrypted the secrets of {count} endpoints with the first secret_key"))?;
    }
    context.output.line(format!("{database} is current"))
}

/// Writes every endpoint as it is, which encrypts its secrets with the first key. Whoever changes one at the same time
/// has encrypted it too.
async fn reseal(config: &Config, operator: &Operator) -> Result<u64, Failure> {
    let store = config.database.open_for_work(config, Preparation::Create).await?;
    let mut count = 0;
    let mut cursor = None;
    loop {
        let page = PageRequest::new(PageRequest::MAX_LIMIT, cursor).expect("the largest page is a page");
        let page = store.endpoints(&EndpointFilter::default(), &page).await?;
        // What cannot be read cannot be written as it is.
        for endpoint in page.items.iter().filter(|endpoint| endpoint.trouble.is_none()) {
            let written = store.replace_endpoint(endpoint, EndpointChange::Reseal, operator).await?;
            count += u64::from(written.is_some());
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(count);
        }
    }
}

fn check(missing: &[String], database: &Database, context: &Context) -> Result<(), Failure> {
    if context.output.json {
        context.output.document(&serde_json::json!({ "missing": missing }))?;
    }
    if missing.is_empty() {
        return if context.output.json { Ok(()) } else { context.output.line(format!("{database} is current")) };
    }
    let message = format!("{database} lacks {}", missing.join(", "));
    Err(Failure::new(Exit::Failed, "migrations_missing", message).hint("run `postrider migrate` on this database"))
}
