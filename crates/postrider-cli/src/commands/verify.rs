//! `postrider verify`: is a received request genuine.

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::commands::Context;
use crate::commands::sign::SecretFlag;
use crate::failure::{Exit, Failure};
use crate::flags::SignatureFlags;
use crate::payload;
use postrider::duration;

const EXAMPLES: &str = "\
Examples:
  postrider verify --data @body.json --header 'webhook-id: evt_…' \\
    --header 'webhook-timestamp: 1771675200' --header 'webhook-signature: v1,…'

Exit codes:
  0  genuine
  1  not genuine; the reason's code is printed";

/// Verify the signature of a payload by its headers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The payload: in place, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "DATA|@FILE|-")]
    data: String,
    /// A header as it was received; give every one that the scheme has
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", required = true)]
    headers: Vec<String>,
    #[command(flatten)]
    secret: SecretFlag,
    /// Against this instant, in seconds since 1970 [default: now]
    #[arg(long, value_name = "SECONDS")]
    now: Option<i64>,
    /// How far the timestamp may be off, in either direction
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    tolerance: String,
    #[command(flatten)]
    signature: SignatureFlags,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Result<(), Failure> {
    let config = context.config(arguments.signature.flags())?;
    let secret = arguments.secret.require(&config)?;
    let headers = parse_headers(&arguments.headers)?;
    let tolerance = duration::parse(&arguments.tolerance).map_err(|reason| {
        let shown = crate::output::plain(&arguments.tolerance, 64);
        Failure::new(Exit::Refused, "tolerance_invalid", format!("--tolerance `{shown}`: {reason}"))
    })?;
    let body = payload::read(&arguments.data)?;
    let now = arguments.now.unwrap_or_else(|| Timestamp::now().as_second());
    match config.signature.verify_headers(&[secret], &headers, &body, now, tolerance) {
        Ok(()) if context.output.json => context.output.document(&serde_json::json!({ "verified": true })),
        Ok(()) => context.output.line("verified"),
        Err(error) => {
            if context.output.json {
                context.output.document(&serde_json::json!({
                    "verified": false, "code": error.code(), "detail": error.to_string(),
                }))?;
                return Err(Failure::Quiet(Exit::Failed));
            }
            Err(Failure::new(Exit::Failed, error.code(), error.to_string()))
        }
    }
}

fn parse_headers(lines: &[String]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let parsed = line.split_once(':').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            Some((name, HeaderValue::from_str(value.trim()).ok()?))
        });
        let Some((name, value)) = parsed else {
            let message = format!("--header `{}` is not a header", crate::output::plain(line, 64));
            return Err(Failure::new(Exit::Refused, "header_invalid", message).hint("write it as 'Name: value'"));
        };
        headers.append(name, value);
    }
    Ok(headers)
}
