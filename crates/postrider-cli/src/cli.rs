//! The command line as a whole.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands;
use crate::config::Key;

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed
  2  usage: the command line makes no sense
  3  not found
  4  refused: a value was not accepted, or a delivery's state forbids it
  5  cannot connect to the database or the server
  6  not authorised: the API key is missing, wrong, or not allowed to

Configuration: `postrider.toml` in the working directory, overridden by POSTRIDER_* variables,
overridden by flags. `postrider config` prints every value and where it came from.

Client commands (send, endpoints, events, deliveries, dead, once, why, keys) ask the server that
--server or POSTRIDER_SERVER names, with the key in POSTRIDER_API_KEY. Without one they work
straight on the database, for which no server needs to run.

Examples:
  postrider demo
  postrider serve --dev --allowed-networks 127.0.0.0/8 &
  export POSTRIDER_SERVER=http://127.0.0.1:8400
  postrider listen &
  postrider endpoints add http://127.0.0.1:9400/
  postrider send invoice.paid --data '{\"invoice\":\"in_42\"}'
  postrider deliveries list";

/// Webhooks delivered surely, signed, in time.
///
/// Events are written together with one delivery per destination; a dispatcher takes due deliveries under a lease,
/// makes one attempt each, and settles the result. `postrider serve` is the HTTP API and a dispatcher in one process, on an
/// SQLite file in the working directory unless `--database` names another or a Postgres server.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, after_long_help = AFTER_HELP, after_help = "`--help` lists exit codes and examples.", max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What holds for all commands.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// What this process was told.
    pub(crate) fn parse() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::described().try_get_matches()?)
    }

    /// The command line as it is parsed, helped with and completed.
    pub(crate) fn described() -> clap::Command {
        with_defaults(Self::command())
    }
}

/// Adds to every flag that sets a key of the configuration what holds if nobody sets it. The parser itself must not
/// know: a default of its own would override the file.
fn with_defaults(command: clap::Command) -> clap::Command {
    let command = command.allow_negative_numbers(true).mut_args(|argument| {
        let key = argument.get_long().and_then(|name| Key::named(&name.replace('-', "_")));
        let default = key.and_then(Key::default_text).filter(|text| !text.is_empty());
        match (default, argument.get_help().map(ToString::to_string)) {
            (Some(default), Some(help)) if !help.contains("[default") => {
                argument.help(format!("{help} [default: {default}]"))
            }
            _ => argument,
        }
    });
    command.mut_subcommands(with_defaults)
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Read this configuration file instead of `postrider.toml`
    #[arg(long, value_name = "FILE", global = true, env = "POSTRIDER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// The database: `sqlite://FILE` or `postgres://…` [default: `sqlite://postrider.db`]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) database: Option<String>,
    /// Ask the server at this URL instead of working on a database; its key is the variable `POSTRIDER_API_KEY`
    #[arg(long, value_name = "URL", global = true, conflicts_with = "database")]
    pub(crate) server: Option<String>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(commands::serve::Arguments),
    Dispatch(commands::dispatch::Arguments),
    Demo(commands::demo::Arguments),
    Send(commands::send::Arguments),
    Listen(commands::listen::Arguments),
    Endpoints(commands::endpoints::Arguments),
    Events(commands::events::Arguments),
    Deliveries(commands::deliveries::Arguments),
    Dead(commands::dead::Arguments),
    Once(commands::once::Arguments),
    Why(commands::why::Arguments),
    Keys(commands::keys::Arguments),
    Schedule(commands::schedule::Arguments),
    Url(commands::url::Arguments),
    Sign(commands::sign::Arguments),
    Verify(commands::verify::Arguments),
    Migrate(commands::migrate::Arguments),
    Config(commands::config::Arguments),
    Doctor(commands::doctor::Arguments),
    Openapi(commands::openapi::Arguments),
    Completions(commands::completions::Arguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
