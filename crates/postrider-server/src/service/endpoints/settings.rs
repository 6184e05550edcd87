//! From what a request says to an endpoint's settings, and back to what is shown.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use postrider::retry::Backoff;
use postrider::{EndpointSettings, EventTypePattern, RetryPolicy, SignatureScheme, duration, headers};

use crate::api::Problem;
use crate::api::endpoints::{Endpoint, EndpointPatch, NewEndpoint, Patched, Signature, SignatureTable};

const MAX_EVENT_TYPES: usize = 100;
const MAX_DESCRIPTION_BYTES: usize = 1_000;
const MAX_IN_FLIGHT: u32 = 10_000;
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_TIMEOUT: Duration = Duration::from_hours(1);

/// What may be changed about an endpoint, and is being changed.
pub(super) struct Draft<'a> {
    pub(super) event_types: Vec<EventTypePattern>,
    pub(super) settings: EndpointSettings,
    default_policy: &'a RetryPolicy,
}

impl<'a> Draft<'a> {
    /// An endpoint of which nothing is said.
    pub(super) fn new(default_policy: &'a RetryPolicy) -> Self {
        Self { event_types: vec![everything()], settings: EndpointSettings::default(), default_policy }
    }

    /// An endpoint as it is.
    pub(super) fn of(endpoint: &postrider::Endpoint, default_policy: &'a RetryPolicy) -> Self {
        Self { event_types: endpoint.event_types.clone(), settings: endpoint.settings.clone(), default_policy }
    }

    /// Takes over what the patch names, or says what is wrong with it.
    pub(super) fn apply(&mut self, patch: EndpointPatch) -> Result<(), Problem> {
        match patch.event_types {
            Patched::Unchanged => {}
            Patched::Default => self.event_types = vec![everything()],
            Patched::To(texts) => self.event_types = checked_event_types(&texts)?,
        }
        self.apply_retry_policy(patch.retry_schedule, &patch.max_attempts)?;
        let settings = &mut self.settings;
        take(&mut settings.max_in_flight, patch.max_in_flight, checked_max_in_flight)?;
        take(&mut settings.rate_limit, patch.rate_limit, |text| Ok(text.parse()?))?;
        take(&mut settings.timeout, patch.timeout, |text| checked_timeout(&text))?;
        take(&mut settings.signature, patch.signature, checked_signature)?;
        match patch.description {
            Patched::Unchanged => {}
            Patched::Default => settings.description = String::new(),
            Patched::To(text) => settings.description = checked_description(text)?,
        }
        self.apply_headers(patch.headers)
    }

    /// Schedule and number of attempts are one policy: whoever sets one of them gets a policy of its own, with the other as
    /// it was. Back at the default, it follows the server's again.
    fn apply_retry_policy(&mut self, schedule: Patched<Vec<String>>, attempts: &Patched<u32>) -> Result<(), Problem> {
        if schedule.is_unchanged() && attempts.is_unchanged() {
            return Ok(());
        }
        let default = self.default_policy;
        let now = self.settings.retry_policy.as_ref().unwrap_or(default);
        let own = matches!(schedule, Patched::To(_)) || matches!(attempts, Patched::To(_));
        let max_attempts = match attempts {
            Patched::Unchanged => now.max_attempts(),
            Patched::Default => default.max_attempts(),
            Patched::To(count) => *count,
        };
        let backoff = match schedule {
            Patched::Unchanged => now.backoff().clone(),
            Patched::Default => default.backoff().clone(),
            Patched::To(texts) => Backoff::Schedule(checked_schedule(&texts)?),
        };
        let policy = match backoff {
            Backoff::Schedule(delays) => RetryPolicy::schedule(delays, max_attempts),
            Backoff::Exponential { initial, factor, max } => {
                RetryPolicy::exponential(initial, factor, max, max_attempts)
            }
        };
        let policy = policy?.with_jitter(default.jitter())?;
        self.settings.retry_policy = (own || policy != *default).then_some(policy);
        Ok(())
    }

    /// Headers that were there are checked again as well: the signature may have got names that they have.
    fn apply_headers(&mut self, patched: Patched<BTreeMap<String, String>>) -> Result<(), Problem> {
        let settings = &mut self.settings;
        let mut wanted = match patched {
            Patched::Unchanged => std::mem::take(&mut settings.headers),
            Patched::Default => Vec::new(),
            Patched::To(headers) => headers.into_iter().collect(),
        };
        // Whoever sends back what was shown keeps the credentials that were not.
        for (name, value) in wanted.iter_mut().filter(|(_, value)| value == headers::MASK) {
            let kept = settings.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            if let Some((_, kept)) = kept {
                kept.clone_into(value);
            }
        }
        let pairs = wanted.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        settings.headers = headers::check(pairs, settings.signature.as_ref())?;
        Ok(())
    }
}

fn take<T, S>(
    setting: &mut Option<S>,
    patched: Patched<T>,
    check: impl FnOnce(T) -> Result<S, Problem>,
) -> Result<(), Problem> {
    match patched {
        Patched::Unchanged => {}
        Patched::Default => *setting = None,
        Patched::To(value) => *setting = Some(check(value)?),
    }
    Ok(())
}

fn everything() -> EventTypePattern {
    "*".parse().expect("`*` is a pattern")
}

fn checked_event_types(texts: &[String]) -> Result<Vec<EventTypePattern>, Problem> {
    if texts.is_empty() || texts.len() > MAX_EVENT_TYPES {
        let detail = format!("event_types has 1 to {MAX_EVENT_TYPES} patterns, here it has {}", texts.len());
        return Err(Problem::new(422, "event_types_count_invalid", detail)
            .about("event_types")
            .hint("use `*` for everything, or pause an endpoint that is to get nothing"));
    }
    let mut patterns: Vec<EventTypePattern> = Vec::with_capacity(texts.len());
    for text in texts {
        let pattern = text.parse()?;
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    Ok(patterns)
}

fn checked_schedule(texts: &[String]) -> Result<Vec<Duration>, Problem> {
    let checked = |(at, text): (usize, &String)| {
        duration::parse(text).map_err(|error| {
            let detail = format!("`{}` in retry_schedule is {error}", shown(text));
            Problem::new(422, "retry_delay_invalid", detail).about(format!("retry_schedule[{at}]"))
        })
    };
    texts.iter().enumerate().map(checked).collect()
}

fn checked_max_in_flight(count: u32) -> Result<NonZeroU32, Problem> {
    NonZeroU32::new(count).filter(|count| count.get() <= MAX_IN_FLIGHT).ok_or_else(|| {
        let detail = format!("max_in_flight is {count}, it must be from 1 to {MAX_IN_FLIGHT}");
        Problem::new(422, "max_in_flight_out_of_range", detail).about("max_in_flight")
    })
}

fn checked_timeout(text: &str) -> Result<Duration, Problem> {
    let refuse = |code, detail: String| Problem::new(422, code, detail).about("timeout");
    let timeout = duration::parse(text)
        .map_err(|error| refuse("timeout_invalid", format!("the timeout `{}` is {error}", shown(text))))?;
    if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
        let [timeout, min, max] = [timeout, MIN_TIMEOUT, MAX_TIMEOUT].map(duration::format);
        return Err(refuse(
            "timeout_out_of_range",
            format!("the timeout is {timeout}, it must be from {min} to {max}"),
        ));
    }
    Ok(timeout)
}

fn checked_signature(signature: Signature) -> Result<SignatureScheme, Problem> {
    let scheme = match signature {
        Signature::Name(name) => name.parse(),
        Signature::Table(table) => {
            SignatureScheme::from_parts(&table.scheme, table.header_prefix.as_deref(), table.signed.as_deref())
        }
    };
    Ok(scheme?)
}

fn checked_description(text: String) -> Result<String, Problem> {
    let unprintable = |character: char| character.is_control() && character != '\n' && character != '\t';
    if text.len() > MAX_DESCRIPTION_BYTES || text.contains(unprintable) {
        let detail = format!("a description has at most {MAX_DESCRIPTION_BYTES} bytes of printable text");
        return Err(Problem::new(422, "description_invalid", detail).about("description"));
    }
    Ok(text)
}

fn shown(text: &str) -> String {
    text.chars().take(32).flat_map(char::escape_default).collect()
}

impl From<NewEndpoint> for EndpointPatch {
    /// What a new endpoint says about itself, but for its URL and its secret.
    fn from(new: NewEndpoint) -> Self {
        Self {
            url: None,
            event_types: Patched::to(new.event_types),
            retry_schedule: Patched::to(new.retry_schedule),
            max_attempts: Patched::to(new.max_attempts),
            max_in_flight: Patched::to(new.max_in_flight),
            rate_limit: Patched::to(new.rate_limit),
            timeout: Patched::to(new.timeout),
            signature: Patched::to(new.signature),
            headers: Patched::to(new.headers),
            description: Patched::to(new.description),
        }
    }
}

impl From<postrider::Endpoint> for Endpoint {
    fn from(endpoint: postrider::Endpoint) -> Self {
        let settings = endpoint.settings;
        let policy = settings.retry_policy.as_ref();
        Self {
            id: endpoint.id,
            tenant: endpoint.tenant,
            url: endpoint.url,
            event_types: endpoint.event_types.into_iter().map(String::from).collect(),
            status: endpoint.status,
            status_reason: endpoint.status_reason,
            failing_since: endpoint.failing_since,
            retry_schedule: policy.map(shown_schedule),
            max_attempts: policy.map(RetryPolicy::max_attempts),
            max_in_flight: settings.max_in_flight.map(NonZeroU32::get),
            rate_limit: settings.rate_limit.map(|limit| limit.to_string()),
            timeout: settings.timeout.map(duration::format),
            signature: settings.signature.map(shown_signature),
            headers: settings.headers.into_iter().map(shown_header).collect(),
            description: settings.description,
            secrets_retiring_until: settings.retiring.iter().map(|retiring| retiring.until).max(),
            trouble: endpoint.trouble,
            revision: endpoint.revision,
            created_at: endpoint.created_at,
        }
    }
}

fn shown_schedule(policy: &RetryPolicy) -> Vec<String> {
    match policy.backoff() {
        Backoff::Schedule(delays) => delays.iter().copied().map(duration::format).collect(),
        Backoff::Exponential { .. } => policy.delays().map(duration::format).collect(),
    }
}

fn shown_signature(scheme: SignatureScheme) -> Signature {
    let name = scheme.name().to_owned();
    match scheme {
        SignatureScheme::Standard => Signature::Name(name),
        SignatureScheme::HmacSha256Hex { header_prefix, signed } => Signature::Table(SignatureTable {
            scheme: name,
            header_prefix: Some(header_prefix.as_str().to_owned()),
            signed: Some(signed.as_str().to_owned()),
        }),
    }
}

fn shown_header((name, value): (String, String)) -> (String, String) {
    let value = if headers::carries_credential(&name) { headers::MASK.to_owned() } else { value };
    (name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(default_policy: &RetryPolicy) -> Draft<'_> {
        Draft::new(default_policy)
    }

    fn patch(text: &str) -> EndpointPatch {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_schedule_or_a_number_of_attempts_makes_a_policy_of_its_own() {
        let default = RetryPolicy::default();
        let mut draft = draft(&default);
        draft.apply(patch(r#"{"max_attempts":3}"#)).unwrap();
        let policy = draft.settings.retry_policy.clone().unwrap();
        assert_eq!((policy.max_attempts(), policy.backoff()), (3, default.backoff()));

        draft.apply(patch(r#"{"retry_schedule":["1s","1m30s"]}"#)).unwrap();
        let policy = draft.settings.retry_policy.clone().unwrap();
        assert_eq!((policy.max_attempts(), shown_schedule(&policy)), (3, vec!["1s".to_owned(), "1m30s".to_owned()]));

        draft.apply(patch(r#"{"max_attempts":null}"#)).unwrap();
        assert_eq!(draft.settings.retry_policy.as_ref().unwrap().max_attempts(), 5);
        draft.apply(patch(r#"{"retry_schedule":null}"#)).unwrap();
        assert_eq!(draft.settings.retry_policy, None, "back at the default, it follows the server's");
        draft.apply(patch(r#"{"max_attempts":5}"#)).unwrap();
        assert_eq!(draft.settings.retry_policy, Some(default.clone()), "asked for, it is its own");
    }

    #[test]
    fn what_is_left_out_stays_and_null_is_the_default() {
        let default = RetryPolicy::default();
        let mut draft = draft(&default);
        let full = r#"{"event_types":["a.*","b","a.*"],"max_in_flight":3,"rate_limit":"5/m","timeout":"1500ms",
            "signature":{"scheme":"hmac-sha256-hex","header_prefix":"X-A-"},"headers":{"X-Team":"t"},"description":"d"}"#;
        draft.apply(patch(full)).unwrap();
        let before = draft.settings.clone();
        draft.apply(patch("{}")).unwrap();
        assert_eq!(draft.settings, before);
        assert_eq!(draft.event_types.len(), 2, "a pattern that is there twice is kept once");
        let none = r#"{"event_types":null,"max_in_flight":null,"rate_limit":null,"timeout":null,"signature":null,
            "headers":null,"description":null}"#;
        draft.apply(patch(none)).unwrap();
        assert_eq!(draft.settings, EndpointSettings::default());
        assert_eq!(draft.event_types, [everything()]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        let default = RetryPolicy::default();
        for (text, code, field) in [
            (r#"{"event_types":[]}"#, "event_types_count_invalid", "event_types"),
            (r#"{"event_types":["a b"]}"#, "event_type_pattern_invalid", "event_types"),
            (r#"{"retry_schedule":["1s","soon"]}"#, "retry_delay_invalid", "retry_schedule[1]"),
            (r#"{"retry_schedule":["400d"]}"#, "retry_delay_too_long", "retry_schedule"),
            (r#"{"retry_schedule":[]}"#, "retry_schedule_empty", "retry_schedule"),
            (r#"{"max_attempts":0}"#, "max_attempts_out_of_range", "max_attempts"),
            (r#"{"max_in_flight":0}"#, "max_in_flight_out_of_range", "max_in_flight"),
            (r#"{"max_in_flight":10001}"#, "max_in_flight_out_of_range", "max_in_flight"),
            (r#"{"rate_limit":"fast"}"#, "rate_limit_invalid", "rate_limit"),
            (r#"{"timeout":"15"}"#, "timeout_invalid", "timeout"),
            (r#"{"timeout":"99ms"}"#, "timeout_out_of_range", "timeout"),
            (r#"{"timeout":"61m"}"#, "timeout_out_of_range", "timeout"),
            (r#"{"signature":"md5"}"#, "signature_scheme_unknown", "signature"),
            (r#"{"signature":{"scheme":"standard","signed":"body"}}"#, "signature_parameter_unused", "signature"),
            (r#"{"headers":{"host":"a"}}"#, "header_reserved", "headers"),
            (r#"{"headers":{"x-api-key":"****"}}"#, "header_value_masked", "headers"),
            (r#"{"description":"\u0000"}"#, "description_invalid", "description"),
        ] {
            let problem = draft(&default).apply(patch(text)).unwrap_err();
            assert_eq!((problem.status, problem.code.as_str()), (422, code), "{text}");
            assert_eq!(problem.errors[0].field, field, "{text}");
        }
    }

    #[test]
    fn headers_give_way_to_the_signatures_own() {
        let default = RetryPolicy::default();
        let mut draft = draft(&default);
        draft.apply(patch(r#"{"headers":{"X-Acme-Signature":"mine"}}"#)).unwrap();
        let signature = r#"{"signature":{"scheme":"hmac-sha256-hex","header_prefix":"X-Acme-"}}"#;
        assert_eq!(draft.apply(patch(signature)).unwrap_err().code, "header_reserved");
    }

    #[test]
    fn a_credential_that_is_sent_back_masked_is_kept() {
        let default = RetryPolicy::default();
        let mut draft = draft(&default);
        draft.apply(patch(r#"{"headers":{"Authorization":"Bearer canary","x-team":"a"}}"#)).unwrap();
        draft.apply(patch(r#"{"headers":{"authorization":"****","x-team":"b"}}"#)).unwrap();
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(draft.settings.headers, [header("authorization", "Bearer canary"), header("x-team", "b")]);
        assert_eq!(shown_header(header("authorization", "Bearer canary")), header("authorization", "****"));
    }
}
