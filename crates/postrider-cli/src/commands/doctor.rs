//! `postrider doctor`: is everything as it should be?

use std::path::Path;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use postrider::store::{Finding, FindingLevel, Health};
use postrider::{DestinationPolicy, duration};
use postrider_server::api::deliveries::DeliveryQuery;
use url::Url;

use crate::client::{self, Client};
use crate::commands::Context;
use crate::config::{Config, Flags, Key, Source};
use crate::database::{Database, Inspected, Preparation};
use crate::failure::{Exit, Failure};
use crate::operator::OperatorFlag;
use crate::output::{Cell, Output, Tone, plain};
use crate::{process, secret_key};

const EXAMPLES: &str = "\
It looks at the configuration, the database and its key; with --server (or POSTRIDER_SERVER) at the
server instead of the database. It changes nothing.

Examples:
  postrider doctor
  postrider doctor --database postgres://postrider@db.internal/app --json
  postrider doctor --server https://postrider.internal
  postrider doctor --ready

With --ready it asks one thing of a running `serve` or `dispatch --listen`: is it ready? It reads no
database and takes at most 3 seconds: a health check for containers that have no shell.
  HEALTHCHECK CMD [\"postrider\", \"doctor\", \"--ready\"]

Exit codes:
  0  nothing is a problem; there may be warnings
  1  something is a problem, or it is not ready";

/// A clock that is this far off is told of.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// For the answer to whether a server is ready, the connection included.
const READY_TIMEOUT: Duration = Duration::from_secs(3);

/// Standard Webhooks asks for at least this many bytes.
const STRONG_SECRET_BYTES: usize = 24;

/// Check that the configuration, the database and the server are fit for work
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only ask whether a server is ready: the one at this URL, or on `listen` of the configuration
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = false)]
    #[expect(clippy::option_option, reason = "given without a URL, it means the one on `listen`")]
    ready: Option<Option<Url>>,
    /// The address that it listens on [default: `127.0.0.1:8400`]
    #[arg(long, value_name = "ADDRESS", requires = "ready")]
    listen: Option<String>,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    if let Some(url) = arguments.ready {
        return ready(url, arguments.listen, context).await;
    }
    let findings = match context.config(Flags::new()) {
        Ok(config) => examine(&config).await,
        Err(failure) => vec![problem("configuration", failure)],
    };
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(FindingLevel::Ok);
    tell(&findings, worst, context.output)?;
    if worst == FindingLevel::Problem { Err(Failure::Quiet(Exit::Failed)) } else { Ok(()) }
}

/// Asks a server whether it is ready, and nothing else.
async fn ready(url: Option<Url>, listen: Option<String>, context: &Context) -> Result<(), Failure> {
    let mut url = if let Some(url) = url {
        url
    } else {
        let flags: Flags = listen.into_iter().map(|address| (Key::Listen, address)).collect();
        let config = context.config_without_server(flags)?;
        Url::parse(&process::url(config.listen)).expect("an address makes a URL")
    };
    if matches!(url.path(), "" | "/") {
        url.set_path("/readyz");
    }
    let status = client::http::status(&url, READY_TIMEOUT).await;
    let why = match status {
        Ok(status) if status.is_success() => {
            if context.output.json {
                return context.output.document(&serde_json::json!({ "ready": true, "url": url.as_str() }));
            }
            return context.output.line("ready");
        }
        Ok(status) => format!("it answers {status}"),
        Err(why) => why,
    };
    Err(Failure::new(
        Exit::Failed,
        "not_ready",
        format!("{} is not ready: {}", plain(url.as_str(), 200), plain(&why, 300)),
    ))
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = vec![configuration(config)];
    if config.server.is_some() {
        findings.extend(server(config).await);
        return findings;
    }
    findings.extend(destinations(&config.admission.destinations));
    findings.push(signing_secret(config));
    findings.push(encryption(config));
    match config.database.inspect(config).await {
        Ok(inspected) => findings.extend(database(config, &inspected).await),
        Err(Failure::Told(told)) if told.code == "database_missing" => {
            findings.push(warning("database", told.message, "`postrider serve` makes it"));
        }
        Err(failure) => findings.push(problem("database", failure)),
    }
    findings
}

fn configuration(config: &Config) -> Finding {
    let sources = || config.effective().iter().map(|effective| &effective.source);
    let file = sources().find_map(|source| match source {
        Source::File(path) => Some(path.display().to_string()),
        _ => None,
    });
    let variables = sources().filter(|source| matches!(source, Source::Variable(_))).count();
    let file = file.map_or_else(|| "no file".to_owned(), |path| format!("`{}`", plain(&path, 200)));
    ok("configuration", format!("every value can hold; from {file} and {variables} variables"))
}

/// What is open, since what is closed does no harm.
fn destinations(policy: &DestinationPolicy) -> Vec<Finding> {
    let hosts = match policy.allowed_hosts().len() {
        0 => "any public host".to_owned(),
        count => format!("hosts that match one of {count} patterns"),
    };
    let scheme = if policy.requires_https() { "https only" } else { "http and https" };
    let mut findings = vec![ok("destinations", format!("{hosts}, {scheme}"))];
    let closed = DestinationPolicy::default();
    let private = policy.allowed_networks().iter().filter(|network| closed.check_address(network.network()).is_err());
    let private: Vec<String> = private.map(ToString::to_string).collect();
    if !private.is_empty() {
        let detail = format!("private networks are open: {}", private.join(", "));
        let hint = "whoever may register an endpoint can reach what listens there; open as little as possible";
        findings.push(warning("private_networks", detail, hint));
    }
    findings
}

fn signing_secret(config: &Config) -> Finding {
    let secrets = &config.signing_secrets;
    let Some(shortest) = secrets.iter().map(|secret| secret.expose().len()).min() else {
        return ok("signing_secret", "not set: events go to registered endpoints only, which have their own");
    };
    if shortest < STRONG_SECRET_BYTES {
        let detail = format!("a secret of {shortest} bytes is easier to guess than it should be");
        return warning("signing_secret", detail, "`postrider sign --new-secret` makes a good one");
    }
    ok("signing_secret", format!("set ({}), for destinations that are given with an event", secrets.len()))
}

/// Whether there is a key, and where. Whether it fits is seen by the database.
fn encryption(config: &Config) -> Finding {
    let count = config.secret_keys.len();
    if count > 0 {
        return ok("encryption", format!("secret_key is set ({count})"));
    }
    let Database::Sqlite(path) = &config.database else {
        return problem("encryption", secret_key::required());
    };
    let file = secret_key::file_beside(path);
    match secret_key::read(&file) {
        Ok(Some(_)) => key_file(&file),
        Ok(None) => ok("encryption", format!("the first start makes a key in `{}`", file.display())),
        Err(failure) => problem("encryption", failure),
    }
}

fn key_file(file: &Path) -> Finding {
    let detail = format!("the key in `{}` is used", file.display());
    if secret_key::is_open_to_others(file) {
        let detail = format!("{detail}, and others than its owner can read it");
        return warning("encryption", detail, &format!("chmod 600 '{}'", file.display()));
    }
    ok("encryption", detail)
}

async fn database(config: &Config, inspected: &Inspected) -> Vec<Finding> {
    let mut findings = vec![ok("database", format!("{} can be reached", config.database))];
    if !inspected.missing.is_empty() {
        let detail = format!("missing: {}", inspected.missing.join(", "));
        let hint = "run `postrider migrate`, or start `postrider serve`";
        findings.push(Finding { hint: Some(hint.to_owned()), ..finding("migrations", FindingLevel::Problem, detail) });
        return findings;
    }
    findings.push(ok("migrations", "none is missing"));
    let asked_at = Timestamp::now();
    let health = inspected.store.health().await.map(|health| clock(&health, asked_at, Timestamp::now()));
    findings.push(health.unwrap_or_else(|error| problem("health", error.into())));
    match inspected.store.diagnose().await {
        // A store that knows its clock better than by asking for the time may say so.
        Ok(found) => {
            findings.retain(|finding| !found.iter().any(|other| other.check == finding.check));
            findings.extend(found);
        }
        Err(error) => findings.push(problem("diagnosis", error.into())),
    }
    findings
}

/// The database's clock may be anywhere between the question and the answer.
fn clock(health: &Health, asked_at: Timestamp, answered_at: Timestamp) -> Finding {
    let ahead = Duration::try_from(health.at.duration_since(answered_at)).unwrap_or_default();
    let behind = Duration::try_from(asked_at.duration_since(health.at)).unwrap_or_default();
    let (difference, word) = if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") };
    if difference <= CLOCK_TOLERANCE {
        return ok("clock", "the database's clock agrees with this machine's");
    }
    let detail = format!("the database's clock is {} {word} this machine's", duration::about(difference));
    warning("clock", detail, "deliveries and signatures go by the database's clock: see that it is right")
}

async fn server(config: &Config) -> Vec<Finding> {
    let query = DeliveryQuery { limit: Some(1), ..DeliveryQuery::default() };
    let asked = async {
        let client = Client::open(config, Preparation::Existing, None, &OperatorFlag::default()).await?;
        client.deliveries(&query).await
    };
    let url = config.server.as_ref().map(ToString::to_string).unwrap_or_default();
    let answers = || ok("server", format!("{url} answers"));
    match asked.await {
        Ok(_) if config.api_key.is_some() => vec![answers(), ok("api_key", "the server accepts it")],
        Ok(_) => {
            vec![answers(), warning("api_key", "the server needs none", "it runs with --dev: for development only")]
        }
        Err(failure) if failure.exit() == Exit::NotAuthorised => vec![answers(), problem("api_key", failure)],
        Err(failure) => vec![problem("server", failure)],
    }
}

fn finding(check: &'static str, level: FindingLevel, detail: impl Into<String>) -> Finding {
    Finding { check, level, detail: detail.into(), hint: None }
}

fn ok(check: &'static str, detail: impl Into<String>) -> Finding {
    finding(check, FindingLevel::Ok, detail)
}

fn warning(check: &'static str, detail: impl Into<String>, hint: &str) -> Finding {
    Finding { hint: Some(hint.to_owned()), ..finding(check, FindingLevel::Warning, detail) }
}

/// What would end another command is one finding among others here.
fn problem(check: &'static str, failure: Failure) -> Finding {
    let Failure::Told(told) = failure else {
        return finding(check, FindingLevel::Problem, "it could not be looked at");
    };
    let detail = format!("{}: {}", told.code, told.message);
    Finding { hint: told.hint, ..finding(check, FindingLevel::Problem, detail) }
}

fn tell(findings: &[Finding], worst: FindingLevel, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(&serde_json::json!({ "worst": worst, "data": findings }));
    }
    let rows = findings.iter().map(|finding| {
        let (word, tone) = match finding.level {
            FindingLevel::Ok => ("ok", Tone::Good),
            FindingLevel::Warning => ("warning", Tone::Waiting),
            FindingLevel::Problem => ("PROBLEM", Tone::Bad),
        };
        vec![finding.check.into(), Cell::toned(word, tone), plain(&finding.detail, 1_000).into()]
    });
    output.table(&["check", "result", "detail"], rows)?;
    for finding in findings {
        if let Some(hint) = &finding.hint {
            output.line(format!("hint ({}): {}", finding.check, plain(hint, 1_000)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_told_of_when_it_is_off_by_more_than_the_question_took() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let level = |database: &str, answered: &str| {
            let health = Health { at: at(database), connections: None };
            clock(&health, at("2026-02-21T12:00:00Z"), at(answered)).level
        };
        assert_eq!(level("2026-02-21T12:00:01Z", "2026-02-21T12:00:02Z"), FindingLevel::Ok);
        // A slow answer is not a wrong clock.
        assert_eq!(level("2026-02-21T12:00:20Z", "2026-02-21T12:00:40Z"), FindingLevel::Ok);
        assert_eq!(level("2026-02-21T12:00:50Z", "2026-02-21T12:00:40Z"), FindingLevel::Warning);
        assert_eq!(level("2026-02-21T11:59:00Z", "2026-02-21T12:00:01Z"), FindingLevel::Warning);
    }

    #[test]
    fn open_private_networks_are_a_warning() {
        let levels = |networks: &[&str]| {
            let policy = DestinationPolicy::default().allow_networks(networks).unwrap();
            destinations(&policy).into_iter().map(|finding| finding.level).max()
        };
        assert_eq!(levels(&[]), Some(FindingLevel::Ok));
        assert_eq!(levels(&["8.8.8.0/24"]), Some(FindingLevel::Ok));
        assert_eq!(levels(&["10.1.0.0/16"]), Some(FindingLevel::Warning));
    }
}
