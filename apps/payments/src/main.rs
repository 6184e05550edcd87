//! Payment requests whose changes of status are told by webhook: an example on Postrider.
//!
//! Three runtimes of one binary share a Postgres database and nothing else:
//!
//! - `server` takes payment requests over HTTP, each with the URL that is to be told.
//! - `reconciler` looks at the chain and changes their status; the same transaction enqueues the event. See [`requests`].
//! - `webhook-dispatcher` sends what is enqueued, signed, until it arrives. See [`dispatcher`].

mod chain;
mod config;
mod demo;
mod dispatcher;
mod failure;
mod legacy;
mod object;
mod reconciler;
mod requests;
mod server;
mod status;
mod status_change;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::config::{DispatcherConfig, Environment, ReconcilerConfig, ServerConfig};
use crate::failure::Failure;
use crate::reconciler::Reconciler;
use crate::requests::Requests;

/// Payment requests whose changes of status are told by webhook
#[derive(Debug, Parser)]
#[command(version, after_help = "Everything is configured by variables named PAYMENTS_…; the README lists them.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Take payment requests over HTTP
    Server,
    /// Look at the chain and change the status of open requests; run as many as wanted
    Reconciler,
    /// Send what is enqueued; run as many as wanted
    WebhookDispatcher,
    /// Look after requests that are older than webhooks
    #[command(subcommand)]
    Legacy(legacy::Command),
    /// Run all three for a while, with a simulated chain and a receiver
    Demo,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr();
    match run(arguments.command, &Environment::of_process()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(command: Command, environment: &Environment) -> Result<(), Failure> {
    match command {
        Command::Server => serve(environment).await,
        Command::Reconciler => {
            let config = ReconcilerConfig::read(environment)?;
            let stopped = stop_signal()?;
            let requests = Requests::open(&config::database_url(environment)?).await?;
            Reconciler::new(requests, config)?.run(told(stopped)).await;
            Ok(())
        }
        Command::WebhookDispatcher => {
            let config = DispatcherConfig::read(environment)?;
            let stopped = stop_signal()?;
            let requests = Requests::open(&config::database_url(environment)?).await?;
            dispatcher::run(requests, config, told(stopped)).await
        }
        Command::Legacy(command) => legacy::run(command, environment).await,
        Command::Demo => demo::run(environment).await,
    }
}

async fn serve(environment: &Environment) -> Result<(), Failure> {
    let config = ServerConfig::read(environment)?;
    let stopped = stop_signal()?;
    let requests = Requests::open(&config::database_url(environment)?).await?;
    let cannot_listen = |error| Failure::Io(format!("{}: cannot listen on {}", config::LISTEN, config.listen), error);
    let listener = TcpListener::bind(config.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    let reconciler = config.reconciler.map(|config| Reconciler::new(requests.clone(), config)).transpose()?;
    info!(url = %format_args!("http://{address}"), reconciles = reconciler.is_some(), "listening");
    let reconciling = async {
        if let Some(reconciler) = reconciler {
            reconciler.run(told(stopped.clone())).await;
        }
    };
    let serving = server::run(requests, config.destinations, listener, told(stopped.clone()));
    tokio::join!(reconciling, serving).1
}

/// Becomes true with the first SIGINT or SIGTERM. Caught before the work starts, so that none is missed.
fn stop_signal() -> Result<watch::Receiver<bool>, Failure> {
    let failed = |error| Failure::Io("cannot catch signals".to_owned(), error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.send_replace(true);
    });
    Ok(stopped)
}

async fn told(mut stopped: watch::Receiver<bool>) {
    // If whoever would tell is gone, it is over as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

fn log_to_stderr() {
    let filter = std::env::var("PAYMENTS_LOG").unwrap_or_else(|_| "info,sqlx=warn".to_owned());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
