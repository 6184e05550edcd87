//! `postrider config`: what holds, and where it came from.

use clap::Args;
use postrider::SecretKey;
use serde::Serialize;

use crate::commands::Context;
use crate::config::Effective;
use crate::failure::Failure;
use crate::flags::{
    DestinationFlags, DispatcherFlags, PayloadFlags, RetryFlags, ServerFlags, SignatureFlags, SigningSecretFlag,
    UpkeepFlags,
};
use crate::output::plain;

const EXAMPLES: &str = "\
Keys are read from postrider.toml (or --config FILE), overridden by variables (POSTRIDER_LEASE for
lease), overridden by flags (--lease). Durations are texts such as 500ms, 30s, 2m, 1h30m or 30d;
lists are arrays in the file and comma-separated elsewhere.

secret_key may be several keys: the first encrypts, all of them decrypt. To rotate it, put a new one
before the old one everywhere, run `postrider migrate --reseal`, and then remove the old one.

Examples:
  postrider config
  export POSTRIDER_SECRET_KEY=$(postrider config --new-secret-key)
  POSTRIDER_LEASE=10s postrider config --json";

/// Print every value of the configuration and where it came from; secrets are masked
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a new random value for `secret_key`, and nothing else
    #[arg(long, conflicts_with_all = ["DispatcherFlags", "RetryFlags", "DestinationFlags", "SignatureFlags", "SigningSecretFlag", "PayloadFlags", "UpkeepFlags", "ServerFlags"])]
    new_secret_key: bool,
    #[command(flatten)]
    dispatcher: DispatcherFlags,
    #[command(flatten)]
    retries: RetryFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    signature: SignatureFlags,
    #[command(flatten)]
    signing_secret: SigningSecretFlag,
    #[command(flatten)]
    payload: PayloadFlags,
    #[command(flatten)]
    upkeep: UpkeepFlags,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Serialize)]
struct Row<'a> {
    key: &'static str,
    value: Option<&'a str>,
    source: String,
    secret: bool,
}

impl<'a> Row<'a> {
    fn new(effective: &'a Effective) -> Self {
        Self {
            key: effective.key.name(),
            value: effective.shown.as_deref(),
            source: effective.source.to_string(),
            secret: effective.key.is_secret(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    if arguments.new_secret_key {
        let key = SecretKey::generate().reveal();
        return if context.output.json {
            context.output.document(&serde_json::json!({ "secret_key": key }))
        } else {
            context.output.line(key)
        };
    }
    let groups = [
        arguments.dispatcher.flags(),
        arguments.retries.flags(),
        arguments.destinations.flags(),
        arguments.signature.flags(),
        arguments.signing_secret.flags(),
        arguments.payload.flags(),
        arguments.upkeep.flags(),
        arguments.server.flags(),
    ];
    let config = context.config(groups.concat())?;
    if context.output.json {
        let rows: Vec<Row<'_>> = config.effective().iter().map(Row::new).collect();
        return context.output.document(&serde_json::json!({ "data": rows }));
    }
    let rows = config.effective().iter().map(|effective| {
        let value = match effective.shown.as_deref() {
            Some("") => "(empty)".to_owned(),
            Some(shown) => plain(shown, 100),
            None => effective.key.when_unset().to_owned(),
        };
        vec![effective.key.name().into(), value.into(), effective.source.to_string().into()]
    });
    context.output.table(&["key", "value", "source"], rows)
}
