//! `rollouts server` takes requests; `rollouts replica` runs tasks and delivers notifications. Run several of each.

mod demo;

use std::future::Future;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use postrider::{DestinationPolicy, LeaseTerm, Secret, WorkerId, duration};
use rollouts::{Rollouts, http, replica};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Rollouts whose end is told once, by however many replicas
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    runtime: Runtime,
}

#[derive(Debug, Args)]
struct Common {
    /// Where plans and notifications are kept, as in `postgres://user:password@host:5432/database`
    #[arg(long, env = "ROLLOUTS_DATABASE", hide_env_values = true, value_name = "URL")]
    database: String,
    /// Networks that webhooks may lead to although they are not public, such as 127.0.0.0/8
    #[arg(long, env = "ROLLOUTS_ALLOWED_NETWORKS", value_delimiter = ',', value_name = "CIDR")]
    allowed_networks: Vec<String>,
}

impl Common {
    async fn open(&self) -> Result<Rollouts, Failure> {
        let destinations = DestinationPolicy::default().allow_networks(&self.allowed_networks)?;
        Ok(Rollouts::open(&self.database, destinations).await?)
    }
}

#[derive(Debug, Subcommand)]
enum Runtime {
    /// Take requests over HTTP
    Server {
        #[command(flatten)]
        common: Common,
        /// The address to listen on; port 0 takes a free one
        #[arg(long, env = "ROLLOUTS_LISTEN", default_value = "127.0.0.1:8600")]
        listen: SocketAddr,
    },
    /// Run tasks, and deliver notifications
    Replica {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        replica: ReplicaArguments,
    },
    /// Show it: three replicas, a receiver, and a plan that fails twice before it succeeds
    Demo {
        /// An empty database
        #[arg(long, env = "POSTRIDER_TEST_POSTGRES", hide_env_values = true, value_name = "URL")]
        database: String,
    },
}

#[derive(Debug, Args)]
struct ReplicaArguments {
    /// What signs notifications: whsec_ and base64, or a text of 16 bytes and more
    #[arg(long, env = "ROLLOUTS_SIGNING_SECRET", hide_env_values = true, required_unless_present = "no_dispatch")]
    signing_secret: Option<String>,
    /// Only run tasks; other replicas deliver what there is to tell
    #[arg(long)]
    no_dispatch: bool,
    /// How long what a crashed replica held waits for another
    #[arg(long, default_value = "30s", value_parser = duration::parse)]
    lease: Duration,
    /// How often to look for work
    #[arg(long, default_value = "200ms", value_parser = duration::parse)]
    poll_interval: Duration,
    /// How many tasks to run at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_running: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { runtime } = Arguments::parse();
    let filter = EnvFilter::try_from_env("ROLLOUTS_LOG").unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(is_terminal).with_writer(std::io::stderr).init();
    match run(runtime).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(runtime: Runtime) -> Result<(), Failure> {
    let shutdown = shutdown()?;
    match runtime {
        Runtime::Server { common, listen } => {
            let listener = TcpListener::bind(listen).await?;
            let rollouts = common.open().await?;
            tracing::info!("listening on http://{}", listener.local_addr()?);
            http::serve(rollouts, listener, shutdown).await?;
        }
        Runtime::Replica { common, replica } => {
            let settings = settings(replica)?;
            let rollouts = common.open().await?;
            replica::run(rollouts, settings, shutdown).await?;
        }
        Runtime::Demo { database } => {
            tokio::select! {
                shown = demo::run(&database) => shown?,
                () = shutdown => {}
            }
        }
    }
    Ok(())
}

fn settings(arguments: ReplicaArguments) -> Result<replica::Settings, Failure> {
    let secret = arguments.signing_secret.filter(|_| !arguments.no_dispatch);
    Ok(replica::Settings {
        worker: WorkerId::random(),
        lease: LeaseTerm::new(arguments.lease)?,
        poll_interval: arguments.poll_interval,
        max_running: arguments.max_running.into(),
        signing_secret: secret.map(|text| Secret::parse(&text)).transpose()?,
    })
}

/// The first SIGINT or SIGTERM, caught from now on.
fn shutdown() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
