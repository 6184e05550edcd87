//! `payments legacy`: requests that are older than webhooks, and have nobody to be told about them.

use std::io::Write as _;

use uuid::Uuid;

use crate::config::{self, ConfigError, Environment};
use crate::failure::Failure;
use crate::requests::Requests;

/// What can be done about them.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List requests without a usable destination, one JSON object per line
    List,
    /// Give one a destination, and send what was held back
    Assign {
        /// The payment request
        id: Uuid,
        /// Where its changes are told from now on
        webhook_url: String,
    },
}

pub(crate) async fn run(command: Command, environment: &Environment) -> Result<(), Failure> {
    let database_url = config::database_url(environment)?;
    let mut output = std::io::stdout();
    let failed = |error| Failure::Io("cannot write to standard output".to_owned(), error);
    match command {
        Command::List => {
            for request in Requests::open(&database_url).await?.legacy().await? {
                let line = serde_json::to_string(&request).expect("ids, names and counts are JSON");
                writeln!(output, "{line}").map_err(failed)?;
            }
        }
        Command::Assign { id, webhook_url } => {
            if !config::webhooks_enabled(environment)? {
                let problem = "webhooks are off, and what was held back would stay so".to_owned();
                return Err(ConfigError { variable: config::WEBHOOKS_ENABLED, problem }.into());
            }
            let destination = config::destinations(environment)?.check_url(&webhook_url)?;
            let sent = Requests::open(&database_url).await?.assign(id, destination.as_str()).await?;
            let sent = sent.ok_or_else(|| {
                Failure::Other(format!(
                    "{id} is not a payment request without a destination; see `payments legacy list`"
                ))
            })?;
            writeln!(output, "{id} is told to {destination}; {sent} changes that were held back are enqueued")
                .map_err(failed)?;
        }
    }
    Ok(())
}
