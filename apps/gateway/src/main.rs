//! The binary `gateway`.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gateway::{Gateway, Settings, serve};
use postrider::{DestinationPolicy, SecretKey};
use tokio::net::TcpListener;
use tracing_subscriber::EnvFilter;

/// Sessions whose changes are told to webhooks
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve HTTP and deliver, until SIGINT or SIGTERM
    Serve(Serve),
}

#[derive(Debug, Args)]
struct Serve {
    /// The SQLite file; it is made if there is none
    #[arg(long, env = "GATEWAY_DATABASE", default_value = "gateway.db")]
    database: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "127.0.0.1:8500")]
    listen: SocketAddr,
    /// What callers must send as `Authorization: Bearer …`; required beyond loopback
    #[arg(long, env = "GATEWAY_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// What encrypts the webhooks' secrets: 32 bytes in base64 [default: the key in `<database>.key`]
    #[arg(long, env = "GATEWAY_SECRET_KEY", hide_env_values = true)]
    secret_key: Option<String>,
    /// Networks that are not public, but may be delivered to, such as 127.0.0.0/8
    #[arg(long, env = "GATEWAY_ALLOWED_NETWORKS", value_delimiter = ',')]
    allowed_networks: Vec<String>,
    /// Refuse webhooks without TLS
    #[arg(long, env = "GATEWAY_REQUIRE_HTTPS")]
    require_https: bool,
    /// How often to look for what is due, when nothing wakes the router
    #[arg(long, env = "GATEWAY_POLL_INTERVAL", default_value = "1s", value_parser = postrider::duration::parse)]
    poll_interval: Duration,
    /// For one whole attempt
    #[arg(long, env = "GATEWAY_TIMEOUT", default_value = "15s", value_parser = postrider::duration::parse)]
    timeout: Duration,
    /// How long a stop waits for attempts that are under way
    #[arg(long, env = "GATEWAY_DRAIN_TIMEOUT", default_value = "30s", value_parser = postrider::duration::parse)]
    drain_timeout: Duration,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { command: Command::Serve(arguments) } = Arguments::parse();
    let filter = EnvFilter::try_from_env("GATEWAY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "error: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Serve) -> Result<(), Failure> {
    let stop = stop_signal()?;
    let named = |name: &'static str| move |error| -> Failure { format!("{name}: {error}").into() };
    let key = arguments.secret_key.as_deref().map(SecretKey::parse).transpose();
    let destinations = DestinationPolicy::default()
        .allow_networks(&arguments.allowed_networks)
        .map_err(|refusal| named("GATEWAY_ALLOWED_NETWORKS")(refusal.to_string()))?
        .require_https(arguments.require_https);
    let settings = Settings {
        database: arguments.database,
        secret_key: key.map_err(|invalid| named("GATEWAY_SECRET_KEY")(invalid.to_string()))?,
        destinations,
        poll_interval: arguments.poll_interval,
        timeout: arguments.timeout,
        drain_timeout: arguments.drain_timeout,
    };
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.map_err(|error| named("GATEWAY_LISTEN")(format!("{}: {error}", arguments.listen)))?;
    let gateway = Gateway::open(settings).await?;
    Ok(serve(gateway, listener, arguments.token, stop).await?)
}

/// Completes at SIGINT or SIGTERM. The handlers are there from the call on, so that a signal during the start counts.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
