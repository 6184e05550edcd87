//! `postrider serve`: the HTTP API and a dispatcher in one process.

use std::sync::Arc;

use clap::Args;
use postrider::StoreErrorCode;
use postrider_server::{Server, ServerConfig, Service};
use serde::Serialize;

use crate::commands::{Context, dispatch};
use crate::config::Config;
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::{
    DestinationFlags, DispatcherFlags, PayloadFlags, RetryFlags, ServerFlags, SignatureFlags, SigningSecretFlag,
    UpkeepFlags,
};
use crate::logging;
use crate::output::{self, Output, Tone};
use crate::process::{self, Process};
use crate::signals::Signals;

const EXAMPLES: &str = "\
The first start on a database prints an admin key, this once, to standard output. If it is lost,
`postrider keys create --database …` makes another one straight on the database.

It runs until SIGINT or SIGTERM, then takes no new connections, claims nothing new, waits for what
is under way (at most --drain-timeout), and exits with 0. A second signal ends it at once.

On Postgres run as many as wanted, with the same secret_key. An SQLite file has one dispatcher at a
time: run further servers on it with --no-dispatch.

Logs go to standard error. POSTRIDER_LOG (or RUST_LOG) says how much: info, postrider=debug,warn.

Examples:
  postrider serve
  postrider serve --dev --allowed-networks 127.0.0.0/8
  export POSTRIDER_SECRET_KEY=$(postrider config --new-secret-key)
  postrider serve --database postgres://postrider@db.internal/app --listen 0.0.0.0:8400
  postrider serve --no-dispatch & postrider dispatch";

/// Serve the HTTP API and deliver what is due, until told to stop
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Serve the API only; `postrider dispatch` delivers elsewhere
    #[arg(long)]
    no_dispatch: bool,
    /// Change nothing about the database's schema, and refuse to start if it is not current
    #[arg(long)]
    no_migrate: bool,
    /// Need no API keys; on a loopback address only
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    upkeep: UpkeepFlags,
    #[command(flatten)]
    dispatcher: DispatcherFlags,
    #[command(flatten)]
    retries: RetryFlags,
    #[command(flatten)]
    payload: PayloadFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    signature: SignatureFlags,
    #[command(flatten)]
    signing_secret: SigningSecretFlag,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let flags = [
        arguments.server.flags(),
        arguments.upkeep.flags(),
        arguments.dispatcher.flags(),
        arguments.retries.flags(),
        arguments.payload.flags(),
        arguments.destinations.flags(),
        arguments.signature.flags(),
        arguments.signing_secret.flags(),
    ];
    let config = context.config_without_server(flags.concat())?;
    if arguments.dev {
        require_loopback(&config)?;
    }
    let signals = Signals::catch()?;
    logging::start(&config)?;
    // Before anything is written or a key is made: a port that is taken is the likeliest reason not to start.
    let (listener, url) = process::bind(config.listen).await?;
    let preparation = if arguments.no_migrate { Preparation::Check } else { Preparation::Migrate };
    let store = config.database.open_for_service(&config, preparation).await?;
    let with_dispatcher = config.dispatch_enabled && !arguments.no_dispatch;
    let dispatcher = if with_dispatcher { Some(dispatch::build(Arc::clone(&store), &config)?) } else { None };
    if let Some(dispatcher) = &dispatcher {
        // Whoever may not dispatch is told so before it says that it does. The dispatcher itself asks again.
        let guard = store.start_dispatching(dispatcher.worker_id()).await;
        drop(guard.map_err(|error| with_way_out(error.into()))?);
    }
    let service = Service::new(store, process::service_settings(&config));
    let started = Started {
        listening: &url,
        database: config.database.to_string(),
        dispatches: with_dispatcher,
        dev: arguments.dev,
    };
    started.tell(context.output)?;
    if !arguments.dev {
        tell_first_key(&service, &url, context.output).await?;
    }
    if let Some(dispatcher) = &dispatcher {
        dispatch::tell_start(&config, dispatcher);
    }

    let server_config = ServerConfig {
        dev: arguments.dev,
        session_keys: config.database.keyring(&config)?,
        ..process::server_config(&config)
    };
    let monitor = dispatcher.as_ref().map(postrider::Dispatcher::monitor);
    let server = Server::new(service.clone(), server_config).dispatcher_monitor(monitor);
    let ended = Process { dispatcher, server: Some((server, listener)) }.run(signals, std::future::pending()).await;
    let ended = ended.map_err(with_way_out)?;
    // Whoever was answered is in the database; this is for those who went away before they were.
    let _ = tokio::time::timeout(config.drain_timeout, service.flush()).await;
    match ended.totals {
        Some(totals) => dispatch::conclude(&totals, context.output),
        None => Ok(()),
    }
}

fn require_loopback(config: &Config) -> Result<(), Failure> {
    if config.listen.ip().is_loopback() {
        return Ok(());
    }
    let message = format!("--dev needs no API keys, and {} can be reached from other machines", config.listen);
    Err(Failure::new(Exit::Refused, "dev_not_loopback", message)
        .hint("listen on 127.0.0.1, or leave --dev out and use the key that the first start prints"))
}

/// A server on a file that has a dispatcher already may still serve.
fn with_way_out(failure: Failure) -> Failure {
    match failure {
        Failure::Told(problem) if problem.code == StoreErrorCode::Locked.as_str() => Failure::Told(problem).hint(
            "an SQLite file has one dispatcher at a time: stop the other process, or give this one --no-dispatch",
        ),
        other => other,
    }
}

/// What a start tells on standard output.
#[derive(Serialize)]
struct Started<'a> {
    listening: &'a str,
    database: String,
    dispatches: bool,
    dev: bool,
}

impl Started<'_> {
    fn tell(&self, output: Output) -> Result<(), Failure> {
        let roles = if self.dispatches { "API and dispatcher" } else { "API only" };
        tracing::info!(url = self.listening, database = %self.database, dev = self.dev, "serving: {roles}");
        if output.json {
            output.json_line(self)?;
        } else {
            let url = output.toned(self.listening, Tone::Good);
            output.line(format!(
                "postrider {} serves {url} ({roles}) from {}",
                env!("CARGO_PKG_VERSION"),
                self.database
            ))?;
        }
        if self.dev {
            // On a terminal the log and this are one text, in which it is said once.
            if output.json || !output::is_beside_the_log() {
                tracing::warn!("DEVELOPMENT MODE: no API key is needed, everybody on this machine can do everything");
            }
            if !output.json {
                let warning = "DEVELOPMENT MODE: no API key is needed, everybody on this machine can do everything.";
                output.line(output.toned(warning, Tone::Bad))?;
            }
        }
        Ok(())
    }
}

/// Standard output only: a log is kept, sent elsewhere and read by many.
async fn tell_first_key(service: &Service, url: &str, output: Output) -> Result<(), Failure> {
    let Some(key) = service.ensure_first_key().await? else { return Ok(()) };
    if output.json {
        return output.json_line(&serde_json::json!({ "first_key": key.reveal() }));
    }
    output.line(format!("first API key (admin, all tenants), shown only now: {}", key.reveal()))?;
    output.line(output.toned(&format!("  export POSTRIDER_SERVER={url} POSTRIDER_API_KEY=that-key"), Tone::Faint))
}
