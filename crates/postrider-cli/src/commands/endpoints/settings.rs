//! How an endpoint wants to be treated: flags to what the API takes.

use std::collections::BTreeMap;

use clap::Args;
use clap::builder::PossibleValuesParser;
use postrider::SignatureScheme;
use postrider_server::api::endpoints::{Confidential, EndpointPatch, NewEndpoint, Patched, Signature, SignatureTable};

use crate::failure::{Exit, Failure};
use crate::output::plain;
use crate::payload;

/// Fields that can be given back to the dispatcher's defaults.
const UNSETTABLE: [&str; 9] = [
    "event_types",
    "retry_schedule",
    "max_attempts",
    "max_in_flight",
    "rate_limit",
    "timeout",
    "signature",
    "headers",
    "description",
];

/// The secret.
#[derive(Debug, Args)]
pub(super) struct SecretFlag {
    /// What signs: `whsec_…` or a plain text in place, `@FILE`, or `-` for standard input; made if it is left out
    #[arg(long, value_name = "SECRET|@FILE|-")]
    secret: Option<String>,
}

impl SecretFlag {
    /// The secret, from wherever it is.
    pub(super) fn read(&self) -> Result<Option<Confidential>, Failure> {
        let Some(text) = &self.secret else { return Ok(None) };
        let text = String::from_utf8(payload::read_secret(text)?).map_err(|_| {
            Failure::new(Exit::Refused, "secret_invalid", "the secret is not UTF-8")
                .hint("`postrider sign --new-secret` makes a good one")
        })?;
        // A file's last line ends with a line break that is no part of the secret.
        Ok(Some(Confidential(text.trim_end_matches(['\r', '\n']).to_owned())))
    }
}

/// What `add` and `update` have in common.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(super) struct SettingFlags {
    /// Which events it gets: `*` is everything, `invoice.*` everything below `invoice.`, otherwise exact; comma-separated
    /// [defaults to `*`]
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    event_types: Option<Vec<String>>,
    /// The delays between attempts, such as `30s,2m,10m`; the last one repeats [defaults to the dispatcher's]
    #[arg(long, value_name = "DELAYS", value_delimiter = ',')]
    retry_schedule: Option<Vec<String>>,
    /// How many attempts there are at most [defaults to the dispatcher's]
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// How many attempts are under way at most, from all dispatchers together [defaults to the dispatcher's]
    #[arg(long, value_name = "COUNT")]
    max_in_flight: Option<u32>,
    /// How often it is called at most, from all dispatchers together: `100/s`, `600/m`, `5000/h`
    #[arg(long, value_name = "COUNT/UNIT")]
    rate_limit: Option<String>,
    /// For one whole attempt [defaults to the dispatcher's]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// How payloads are signed [defaults to the dispatcher's]
    #[arg(long, value_name = "SCHEME", value_parser = PossibleValuesParser::new(SignatureScheme::NAMES))]
    signature: Option<String>,
    /// What the headers of hmac-sha256-hex begin with, such as `X-Acme-`
    #[arg(long, value_name = "PREFIX", requires = "signature")]
    header_prefix: Option<String>,
    /// What hmac-sha256-hex signs: `timestamp.body` or `body`
    #[arg(long, value_name = "WHAT", requires = "signature")]
    signed: Option<String>,
    /// A header that is sent with every attempt, `Name: value`; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

/// What was given, in the API's terms.
pub(super) struct Settings {
    event_types: Option<Vec<String>>,
    retry_schedule: Option<Vec<String>>,
    max_attempts: Option<u32>,
    max_in_flight: Option<u32>,
    rate_limit: Option<String>,
    timeout: Option<String>,
    signature: Option<Signature>,
    headers: Option<BTreeMap<String, String>>,
    description: Option<String>,
}

impl SettingFlags {
    /// What they say. Whether it is acceptable, the API knows.
    pub(super) fn parse(self) -> Result<Settings, Failure> {
        let trimmed = |texts: Vec<String>| texts.iter().map(|text| text.trim().to_owned()).collect();
        let signature = match (self.signature, self.header_prefix, self.signed) {
            (None, ..) => None,
            (Some(name), None, None) => Some(Signature::Name(name)),
            (Some(scheme), header_prefix, signed) => {
                Some(Signature::Table(SignatureTable { scheme, header_prefix, signed }))
            }
        };
        Ok(Settings {
            event_types: self.event_types.map(trimmed),
            retry_schedule: self.retry_schedule.map(trimmed),
            max_attempts: self.max_attempts,
            max_in_flight: self.max_in_flight,
            rate_limit: self.rate_limit,
            timeout: self.timeout,
            signature,
            headers: if self.headers.is_empty() { None } else { Some(headers(&self.headers)?) },
            description: self.description,
        })
    }
}

/// Values of headers may be credentials, so that no error repeats them.
fn headers(lines: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let refuse =
        |message: String| Failure::new(Exit::Refused, "header_invalid", message).hint("write it as 'Name: value'");
    let mut headers = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(refuse(format!("--header number {} has no name and value", index + 1)));
        };
        let name = name.trim();
        let twice = headers.keys().any(|known: &String| known.eq_ignore_ascii_case(name));
        if twice {
            return Err(refuse(format!("--header names `{}` twice", plain(name, 64))).hint("give each name one value"));
        }
        headers.insert(name.to_owned(), value.trim().to_owned());
    }
    Ok(headers)
}

impl Settings {
    /// Of an endpoint to be registered, without its URL and secret.
    pub(super) fn into_new(self) -> NewEndpoint {
        NewEndpoint {
            url: String::new(),
            secret: None,
            event_types: self.event_types,
            retry_schedule: self.retry_schedule,
            max_attempts: self.max_attempts,
            max_in_flight: self.max_in_flight,
            rate_limit: self.rate_limit,
            timeout: self.timeout,
            signature: self.signature,
            headers: self.headers,
            description: self.description,
        }
    }

    /// Of an endpoint to be changed.
    pub(super) fn into_patch(self) -> EndpointPatch {
        EndpointPatch {
            url: None,
            event_types: Patched::to(self.event_types),
            retry_schedule: Patched::to(self.retry_schedule),
            max_attempts: Patched::to(self.max_attempts),
            max_in_flight: Patched::to(self.max_in_flight),
            rate_limit: Patched::to(self.rate_limit),
            timeout: Patched::to(self.timeout),
            signature: Patched::to(self.signature),
            headers: Patched::to(self.headers),
            description: Patched::to(self.description),
        }
    }
}

/// What is the dispatcher's default again.
#[derive(Debug, Args)]
pub(super) struct UnsetFlag {
    /// Give this field back to its default; may be repeated
    #[arg(long, value_name = "FIELD", value_parser = PossibleValuesParser::new(UNSETTABLE))]
    unset: Vec<String>,
}

impl UnsetFlag {
    /// Unsets what is named, unless it is also set.
    pub(super) fn apply(&self, patch: &mut EndpointPatch) -> Result<(), Failure> {
        self.unset.iter().try_for_each(|field| {
            let unset = match field.as_str() {
                "event_types" => unset(&mut patch.event_types),
                "retry_schedule" => unset(&mut patch.retry_schedule),
                "max_attempts" => unset(&mut patch.max_attempts),
                "max_in_flight" => unset(&mut patch.max_in_flight),
                "rate_limit" => unset(&mut patch.rate_limit),
                "timeout" => unset(&mut patch.timeout),
                "signature" => unset(&mut patch.signature),
                "headers" => unset(&mut patch.headers),
                "description" => unset(&mut patch.description),
                _ => unreachable!("the parser takes no other field"),
            };
            if unset {
                return Ok(());
            }
            let message = format!("{field} is set and unset at once");
            Err(Failure::new(Exit::Usage, "usage", message).hint("do one or the other"))
        })
    }
}

fn unset<T>(field: &mut Patched<T>) -> bool {
    let set = matches!(field, Patched::To(_));
    if !set {
        *field = Patched::Default;
    }
    !set
}
