//! How a command ends: a documented exit code, and for failures one `error[code]` with its `hint`.

use std::fmt;
use std::io;

use postrider::{EnqueueError, Refusal, StoreError, StoreErrorCode};
use postrider_server::api;
use serde::Serialize;

use crate::output::plain;

/// Longer texts are cut: they come from elsewhere, and a person reads them.
const MOST_CHARACTERS: usize = 2_000;

/// What the process exits with. Documented in `postrider --help`; scripts depend on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything that was asked for happened.
    Done,
    /// Something broke, or the answer is no.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// What was named does not exist.
    NotFound,
    /// A value was not accepted, or a delivery's state forbids what was asked for.
    Refused,
    /// The database or the server is not to be reached.
    CannotConnect,
    /// The server does not let this key in, or not this far.
    NotAuthorised,
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::CannotConnect => 5,
            Self::NotAuthorised => 6,
        }
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// To be told to the user.
    Told(Box<Problem>),
    /// Everything was said already; only the exit code is left.
    Quiet(Exit),
    /// Whoever read standard output went away, as `head` does. Not an error.
    ReaderGone,
}

/// What to tell.
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    /// How the process ends.
    #[serde(skip)]
    pub(crate) exit: Exit,
    /// Stable, for programs.
    pub(crate) code: String,
    /// What went wrong, with which value. Never contains a payload or a secret.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure to be told to the user.
    pub(crate) fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Told(Box::new(Problem { exit, code: code.into(), message: message.into(), hint: None }))
    }

    /// The same, with what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Told(problem) = &mut self {
            problem.hint = Some(hint.into());
        }
        self
    }

    /// How the process ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Told(problem) => problem.exit,
            Self::Quiet(exit) => *exit,
            Self::ReaderGone => Exit::Done,
        }
    }
}

impl Problem {
    /// As programs read it: one line on standard error.
    pub(crate) fn json(&self) -> String {
        serde_json::json!({ "error": self }).to_string()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::new(Exit::Failed, "output_failed", format!("cannot write the output: {error}"))
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        // The detail quotes what was refused, which may be anything.
        let failure = Self::new(Exit::Refused, refusal.code, plain(&refusal.detail, MOST_CHARACTERS));
        match refusal.hint {
            Some(hint) => failure.hint(with_flags(hint)),
            None => failure,
        }
    }
}

/// The engine names the key of the configuration; here it also has a flag and a variable.
fn with_flags(hint: String) -> String {
    if hint.contains("`allowed_networks`") {
        format!("{hint} (--allowed-networks, or POSTRIDER_ALLOWED_NETWORKS)")
    } else {
        hint
    }
}

/// What the service or a server refused: the status decides the exit code.
impl From<api::Problem> for Failure {
    fn from(problem: api::Problem) -> Self {
        // Several fields may be wrong at once, and the detail tells of one of them at most.
        let others = problem.errors.iter().filter(|error| !problem.detail.contains(&error.detail));
        let message = others
            .fold(problem.detail.clone(), |message, error| format!("{message}; {}: {}", error.field, error.detail));
        let message = match &problem.request_id {
            // What happened is only in the server's log.
            Some(id) if problem.status >= 500 => format!("{message} (request {id})"),
            _ => message,
        };
        let failure = Self::new(exit_of(problem.status), problem.code.as_str(), plain(&message, MOST_CHARACTERS));
        match hint_of(&problem.code).map(str::to_owned).or(problem.hint.map(with_flags)) {
            Some(hint) => failure.hint(plain(&hint, MOST_CHARACTERS)),
            None => failure,
        }
    }
}

/// How a command ends that was answered with this status.
pub(crate) const fn exit_of(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::NotAuthorised,
        404 => Exit::NotFound,
        400 | 409 | 413 | 415 | 422 => Exit::Refused,
        503 => Exit::CannotConnect,
        _ => Exit::Failed,
    }
}

/// What to do about it in a shell, where the API's own hint, if it has one, speaks of something else.
fn hint_of(code: &str) -> Option<&'static str> {
    Some(match code {
        "delivery_not_found" => "`postrider deliveries list` prints those that there are",
        "event_not_found" => "`postrider events list` prints those that there are",
        "endpoint_not_found" => "`postrider endpoints list` prints those that there are",
        "key_not_found" => "`postrider keys list` prints those that there are",
        "key_missing" => "export POSTRIDER_API_KEY=prk_…; `postrider keys create` on the server's database makes one",
        "key_invalid" => "check POSTRIDER_API_KEY: it may be revoked, or be of another server",
        "scope_insufficient" => "use a key with a larger scope; `postrider keys list` shows each key's",
        "tenant_forbidden" => "leave out --tenant (and POSTRIDER_TENANT), or use a key for all tenants",
        "tenant_ambiguous" => "name one tenant with --tenant (or POSTRIDER_TENANT)",
        "signing_secret_missing" => {
            "set signing_secret where deliveries are made (`postrider sign --new-secret` makes one), or register the URL \
             with `postrider endpoints add`"
        }
        _ => return None,
    })
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match error.code {
            StoreErrorCode::Unavailable => Exit::CannotConnect,
            _ => Exit::Failed,
        };
        let mut message = error.message.clone();
        if let Some(source) = std::error::Error::source(&error) {
            let source = source.to_string();
            if !message.contains(&source) {
                message = format!("{message}: {source}");
            }
        }
        // What to do is said once, as a hint.
        let message = message.strip_suffix("; run `postrider migrate`").map_or(message.clone(), str::to_owned);
        let failure = Self::new(exit, error.code.as_str(), message);
        match error.code {
            StoreErrorCode::Unavailable => {
                failure.hint("check `--database` (or POSTRIDER_DATABASE), and that the database is running")
            }
            // Only where something is missing: a database that is newer than this program is not to be migrated.
            StoreErrorCode::Schema if error.message.contains("postrider migrate") => {
                failure.hint("run `postrider migrate` on this database")
            }
            StoreErrorCode::Locked => failure.hint(
                "an SQLite file has one dispatcher at a time: stop the other one, or use a Postgres database for several",
            ),
            StoreErrorCode::SecretKey => failure.hint("set secret_key to the key that this database was used with"),
            StoreErrorCode::Full => failure.hint("free some space, then try again"),
            StoreErrorCode::Busy | StoreErrorCode::Contended | StoreErrorCode::Conflict => failure.hint("try again"),
            StoreErrorCode::Schema | StoreErrorCode::Internal => failure,
        }
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Refused(refusal) => refusal.into(),
            EnqueueError::Store(error) => error.into(),
            EnqueueError::IdempotencyConflict { key, event_id } => Self::new(
                Exit::Refused,
                "idempotency_conflict",
                format!("the idempotency key `{key}` belongs to {event_id}, whose content differs"),
            )
            .hint("use another key for another event, or send exactly what was sent before"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(problem: api::Problem) -> Problem {
        match Failure::from(problem) {
            Failure::Told(problem) => *problem,
            other => panic!("{other:?} is told"),
        }
    }

    #[test]
    fn a_status_becomes_an_exit_code() {
        for (status, code) in [
            (400, 4),
            (401, 6),
            (403, 6),
            (404, 3),
            (405, 1),
            (409, 4),
            (413, 4),
            (422, 4),
            (429, 1),
            (500, 1),
            (503, 5),
        ] {
            assert_eq!(told(api::Problem::new(status, "x", "y")).exit.code(), code, "{status}");
        }
    }

    #[test]
    fn what_is_wrong_with_each_field_is_told_once() {
        let field = |field: &str, detail: &str| api::FieldProblem {
            field: field.to_owned(),
            code: "c".to_owned(),
            detail: detail.to_owned(),
        };
        let mut problem = api::Problem::new(422, "invalid", "the url is bad").hint("the API's");
        problem.errors = vec![field("url", "the url is bad"), field("timeout", "it is too long\u{1b}[2J")];
        let told = told(problem);
        assert!(told.message.starts_with("the url is bad; timeout: it is too long"), "{}", told.message);
        assert!(!told.message.contains('\u{1b}'), "{}", told.message);
        assert_eq!(told.hint.as_deref(), Some("the API's"));
    }
}
