//! `postrider migrate`: the database's schema.

use clap::Args;

use crate::commands::Context;
use crate::config::Flags;
use crate::database::{self, Database};
use crate::failure::{Exit, Failure};

const EXAMPLES: &str = "\
Examples:
  postrider migrate --database postgres://postrider@db.internal/app
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
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let config = context.config(Flags::new())?;
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
    if context.output.json {
        return context.output.document(&serde_json::json!({ "applied": names }));
    }
    for name in &names {
        context.output.line(format!("applied {name}"))?;
    }
    context.output.line(format!("{database} is current"))
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
