//! `postrider sign`: the headers that prove a payload.

use clap::Args;
use jiff::Timestamp;
use postrider::signature::Message;
use postrider::{EventId, Secret};

use crate::commands::Context;
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::flags::SignatureFlags;
use crate::payload;

const EXAMPLES: &str = "\
Examples:
  postrider sign --new-secret
  postrider sign --data '{\"a\":1}' --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
  postrider sign --data @body.json > headers
  curl -H @headers --data-binary @body.json http://127.0.0.1:9400/
  postrider sign --data - --signature hmac-sha256-hex --header-prefix X-Acme- < body.json";

/// Sign a payload with a secret, and print the headers; or make a new secret
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print a new random secret, and nothing else
    #[arg(long, conflicts_with_all = ["data", "secret", "id", "event_type", "timestamp", "SignatureFlags"])]
    new_secret: bool,
    /// The payload: in place, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "DATA|@FILE|-", required_unless_present = "new_secret")]
    data: Option<String>,
    #[command(flatten)]
    secret: SecretFlag,
    /// The event's id [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The event's type, which hmac-sha256-hex sends along
    #[arg(long, value_name = "TYPE", default_value = "example.signed")]
    event_type: String,
    /// When it is signed, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<i64>,
    #[command(flatten)]
    signature: SignatureFlags,
}

/// The secret to sign or verify with.
#[derive(Debug, Args)]
pub(crate) struct SecretFlag {
    /// The secret [default: the configured `signing_secret`]
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
}

impl SecretFlag {
    /// The secret that was given or is configured.
    pub(crate) fn find(&self, config: &Config) -> Result<Option<Secret>, Failure> {
        match &self.secret {
            None => Ok(config.signing_secrets.first().cloned()),
            Some(text) => Secret::parse(text).map(Some).map_err(|error| {
                Failure::new(Exit::Refused, "secret_invalid", format!("--secret is refused: {error}"))
                    .hint("`postrider sign --new-secret` makes one")
            }),
        }
    }

    /// The same, where there must be one.
    pub(crate) fn require(&self, config: &Config) -> Result<Secret, Failure> {
        self.find(config)?.ok_or_else(|| {
            Failure::new(
                Exit::Refused,
                "secret_missing",
                "there is no secret: neither --secret nor signing_secret is set",
            )
            .hint("export POSTRIDER_SIGNING_SECRET=$(postrider sign --new-secret)")
        })
    }
}

pub(crate) fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    if arguments.new_secret {
        let secret = Secret::generate().reveal();
        return if context.output.json {
            context.output.document(&serde_json::json!({ "secret": secret }))
        } else {
            context.output.line(secret)
        };
    }
    let config = context.config(arguments.signature.flags())?;
    let secret = arguments.secret.require(&config)?;
    let body = payload::read(&arguments.data.unwrap_or_default())?;
    let new_id = || EventId::from_uuid(uuid::Uuid::now_v7()).to_string();
    let message = Message {
        event_id: &arguments.id.unwrap_or_else(new_id),
        event_type: &arguments.event_type,
        timestamp: arguments.timestamp.unwrap_or_else(|| Timestamp::now().as_second()),
        body: &body,
    };
    let headers = config.signature.sign(&[secret], &message)?;
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    if context.output.json {
        let headers: serde_json::Map<_, _> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value).into())).collect();
        return context.output.document(&serde_json::json!({ "headers": headers }));
    }
    for (name, value) in &headers {
        context.output.line(format!("{name}: {}", text(value)))?;
    }
    Ok(())
}
