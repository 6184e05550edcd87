//! `postrider listen`: a receiver that verifies and prints.

use std::time::Duration;

use clap::Args;
use http::StatusCode;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::commands::Context;
use crate::commands::sign::SecretFlag;
use crate::failure::{Exit, Failure};
use crate::flags::SignatureFlags;
use crate::output::{Output, Tone, plain};
use crate::receiver::{Answer, Arrival, Behaviour, Receiver, Verification};
use crate::signals::Signals;

const EXAMPLES: &str = "\
It listens on 127.0.0.1 only. With a secret, what is not genuine is answered with 401; everything
else with --status, or with 500 as often as --fail-rate says.

Examples:
  postrider listen
  postrider listen --port 0 --json
  postrider listen --fail-rate 0.3 --delay-ms 250
  postrider listen --status 503 --secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Receive webhooks for development: verify their signatures, print what arrives
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 9400)]
    port: u16,
    #[command(flatten)]
    secret: SecretFlag,
    /// What to answer
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Answer this share of requests with 500 instead, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    fail_rate: f64,
    /// Wait before each answer, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    delay_ms: u64,
    #[command(flatten)]
    signature: SignatureFlags,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "it must be from 0 to 1".to_owned())
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let config = context.config(arguments.signature.flags())?;
    let secret = arguments.secret.find(&config)?;
    let receiver = Receiver::bind(arguments.port).await.map_err(|error| {
        let message = format!("cannot listen on 127.0.0.1:{}: {error}", arguments.port);
        Failure::new(Exit::Failed, "port_unavailable", message).hint("`--port 0` takes a free one")
    })?;
    let mut signals = Signals::catch()?;
    tell_start(&receiver.url(), secret.is_some(), context.output)?;
    let (arrivals, mut inbox) = mpsc::channel(256);
    let behaviour = Behaviour {
        secrets: secret.into_iter().collect(),
        scheme: config.signature.clone(),
        answer: answers(&arguments),
        delay: Duration::from_millis(arguments.delay_ms),
    };
    let serving = tokio::spawn(receiver.serve(behaviour, arrivals));
    loop {
        tokio::select! {
            _ = signals.next() => break,
            arrival = inbox.recv() => match arrival {
                Some(arrival) => tell(&arrival, context.output)?,
                None => break,
            },
        }
    }
    serving.abort();
    Ok(())
}

fn answers(arguments: &Arguments) -> Answer {
    let status = StatusCode::from_u16(arguments.status).expect("the parser takes 200 to 599 only");
    let fail_rate = arguments.fail_rate;
    Box::new(move |_| if draw() < fail_rate { StatusCode::INTERNAL_SERVER_ERROR } else { status })
}

/// A random number from 0 to 1, 1 excluded.
fn draw() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128().to_be_bytes();
    f64::from(u32::from_be_bytes([bits[0], bits[1], bits[2], bits[3]])) / (f64::from(u32::MAX) + 1.0)
}

fn tell_start(url: &str, verifies: bool, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.json_line(&serde_json::json!({ "listening": url, "verifies": verifies }));
    }
    output.line(format!("listening on {url} (Ctrl-C ends it)"))?;
    if !verifies {
        output
            .line("no secret is set, so signatures are not verified; --secret or POSTRIDER_SIGNING_SECRET sets one")?;
    }
    if verifies {
        output.line("send to it, in other terminals with the same POSTRIDER_SIGNING_SECRET:")?;
    } else {
        // Nothing is ever sent unsigned, whether or not this receiver looks.
        output.line("send to it, in other terminals:")?;
        output.line("  export POSTRIDER_SIGNING_SECRET=$(postrider sign --new-secret)")?;
    }
    output.line(format!("  postrider send example.sent --to {url} --allowed-networks 127.0.0.0/8"))?;
    output.line("  postrider dispatch --allowed-networks 127.0.0.0/8")
}

#[derive(Serialize)]
struct Line<'a> {
    at: jiff::Timestamp,
    event_type: Option<&'a str>,
    event_id: Option<&'a str>,
    delivery_id: Option<&'a str>,
    attempt: Option<u32>,
    verification: &'static str,
    reason: Option<&'static str>,
    status: u16,
    body: String,
}

fn tell(arrival: &Arrival, output: Output) -> Result<(), Failure> {
    let invalid = match &arrival.verification {
        Verification::Invalid(error) => Some(error),
        _ => None,
    };
    let body = String::from_utf8_lossy(&arrival.body);
    if output.json {
        return output.json_line(&Line {
            at: arrival.at,
            event_type: arrival.event_type.as_deref(),
            event_id: arrival.event_id.as_deref(),
            delivery_id: arrival.delivery_id.as_deref(),
            attempt: arrival.attempt,
            verification: arrival.verification.as_str(),
            reason: invalid.map(postrider::signature::VerifyError::code),
            status: arrival.status.as_u16(),
            body: body.into_owned(),
        });
    }
    let shown = |text: &Option<String>| plain(text.as_deref().unwrap_or("-"), 80);
    let verification = match (&arrival.verification, invalid) {
        (_, Some(error)) => output.toned(&format!("INVALID ({})", error.code()), Tone::Bad),
        (Verification::Verified, None) => output.toned("verified", Tone::Good),
        (other, None) => output.toned(other.as_str(), Tone::Waiting),
    };
    let tone = if arrival.status.is_success() { Tone::Good } else { Tone::Bad };
    let attempt = arrival.attempt.map_or_else(|| "-".to_owned(), |number| number.to_string());
    output.line(format!(
        "{}  {}  {}  {}  attempt {attempt}  {verification}  {}  {}",
        output.toned(&arrival.at.strftime("%H:%M:%S%.3f").to_string(), Tone::Faint),
        shown(&arrival.event_type),
        shown(&arrival.event_id),
        shown(&arrival.delivery_id),
        output.toned(arrival.status.as_str(), tone),
        plain(&body, 200),
    ))
}
