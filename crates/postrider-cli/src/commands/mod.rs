//! One module per command. Each has its `Arguments` and a `run`.

pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod dead;
pub(crate) mod deliveries;
pub(crate) mod demo;
pub(crate) mod dispatch;
pub(crate) mod doctor;
pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod keys;
pub(crate) mod listen;
pub(crate) mod migrate;
pub(crate) mod once;
pub(crate) mod openapi;
pub(crate) mod schedule;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod sign;
pub(crate) mod url;
pub(crate) mod verify;
pub(crate) mod why;

use crate::cli::{Cli, Command, Global};
use crate::config::{Config, Flags, Key};
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// What every command is given.
pub(crate) struct Context {
    global: Global,
    /// Where it prints.
    pub(crate) output: Output,
}

impl Context {
    /// The configuration under these flags of the command's own.
    pub(crate) fn config(&self, mut flags: Flags) -> Result<Config, Failure> {
        if let Some(database) = &self.global.database {
            flags.push((Key::Database, database.clone()));
        }
        if let Some(server) = &self.global.server {
            flags.push((Key::Server, server.clone()));
        }
        Config::load(self.global.config.as_deref(), flags)
    }

    /// The same, for commands that work on the database whatever server is known: to pass over one that was named would
    /// look as if it had been asked.
    pub(crate) fn config_without_server(&self, flags: Flags) -> Result<Config, Failure> {
        if self.global.server.is_some() {
            let message = "--server has no meaning here: this command works on the database";
            return Err(Failure::new(Exit::Usage, "usage", message).hint("name it with --database"));
        }
        self.config(flags)
    }
}

/// Does what the command line says.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let context = &Context { output: Output::new(cli.global.json), global: cli.global };
    match cli.command {
        Command::Serve(arguments) => serve::run(arguments, context).await,
        Command::Dispatch(arguments) => dispatch::run(arguments, context).await,
        Command::Demo(arguments) => demo::run(arguments, context).await,
        Command::Send(arguments) => send::run(arguments, context).await,
        Command::Listen(arguments) => listen::run(arguments, context).await,
        Command::Endpoints(arguments) => endpoints::run(arguments, context).await,
        Command::Events(arguments) => events::run(arguments, context).await,
        Command::Deliveries(arguments) => deliveries::run(arguments, context).await,
        Command::Dead(arguments) => dead::run(arguments, context).await,
        Command::Once(arguments) => once::run(arguments, context).await,
        Command::Why(arguments) => why::run(arguments, context).await,
        Command::Keys(arguments) => keys::run(arguments, context).await,
        Command::Schedule(arguments) => schedule::run(arguments, context),
        Command::Url(arguments) => url::run(arguments, context),
        Command::Sign(arguments) => sign::run(arguments, context),
        Command::Verify(arguments) => verify::run(&arguments, context),
        Command::Migrate(arguments) => migrate::run(arguments, context).await,
        Command::Config(arguments) => config::run(&arguments, context),
        Command::Doctor(arguments) => doctor::run(arguments, context).await,
        Command::Openapi(arguments) => openapi::run(&arguments, context),
        Command::Completions(arguments) => completions::run(&arguments, context),
    }
}
