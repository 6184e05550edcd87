//! The form in which an endpoint is described, for a new one and for one that is changed.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::parts;
use super::query::Fields;
use super::viewer::Viewer;
use crate::api::Problem;
use crate::api::endpoints::{Confidential, Endpoint, EndpointPatch, NewEndpoint, Patched, Signature, SignatureTable};

const STANDARD: &str = "standard";

/// One line of the form.
struct Field<'a> {
    name: &'static str,
    label: &'static str,
    placeholder: &'static str,
    help: &'static str,
    /// A text of several lines.
    tall: bool,
    required: bool,
    fields: &'a Fields,
    problem: Option<&'a Problem>,
}

impl Field<'_> {
    fn show(&self) -> Markup {
        let Self { name, label, placeholder, help, .. } = *self;
        let value = self.fields.raw(name);
        // `retry_schedule[1]` is about `retry_schedule`.
        let about = |field: &str| field.split('[').next() == Some(name);
        let wrong = self.problem.into_iter().flat_map(|problem| &problem.errors).find(|error| about(&error.field));
        let help_id = format!("{name}-help");
        html! {
            div.field.wrong[wrong.is_some()] {
                label for=(name) { (label) }
                @if self.tall {
                    textarea id=(name) name=(name) rows="3" placeholder=(placeholder) spellcheck="false"
                        aria-describedby=(help_id) aria-invalid=[wrong.map(|_| "true")] { (value) }
                } @else {
                    input id=(name) name=(name) value=(value) placeholder=(placeholder) required[self.required]
                        spellcheck="false" autocomplete="off" aria-describedby=(help_id) aria-invalid=[wrong.map(|_| "true")];
                }
                p.fineprint id=(help_id) { @if let Some(wrong) = wrong { strong { (wrong.detail) } } @else { (help) } }
            }
        }
    }
}

/// The form, with what was typed and what is wrong with it.
pub(super) fn show(viewer: &Viewer, path: &str, fields: &Fields, new: bool, problem: Option<&Problem>) -> Markup {
    let field = |name, label, placeholder, help| Field {
        name,
        label,
        placeholder,
        help,
        tall: matches!(name, "event_types" | "headers"),
        required: name == "url",
        fields,
        problem,
    };
    let detailed =
        ["retry_schedule", "max_attempts", "max_in_flight", "rate_limit", "timeout", "header_prefix", "headers"];
    let open = problem.is_some() || detailed.iter().any(|name| !fields.text(name).is_empty());
    html! {
        @if let Some(problem) = problem { (parts::complaint(problem)) }
        form.stack method="post" action=(path) {
            (parts::token(viewer))
            @if let Some(signed) = fields.given("signed") { input type="hidden" name="signed" value=(signed); }
            (field("url", "URL", "https://hooks.example.com/billing", "Where events are sent, as POST.").show())
            (field("description", "Description", "Billing, production", "For people.").show())
            (field("event_types", "Event types", "invoice.*", "One per line. * is everything, invoice.* everything below invoice. Left empty, it gets everything.").show())
            @if new {
                (field("secret", "Signing secret", "whsec_…", "Left empty, one is made, and shown once.").show())
            }
            details.more open[open] {
                summary { "Retries, limits and signature" }
                div.pairs {
                    (field("retry_schedule", "Retry schedule", "30s, 2m, 10m, 1h, 6h", "How long to wait after each failure; the last repeats. Left empty, as the server does it.").show())
                    (field("max_attempts", "Attempts at most", "5", "After the last one a delivery is dead.").show())
                    (field("max_in_flight", "In flight at most", "8", "From all dispatchers together.").show())
                    (field("rate_limit", "Rate limit", "100/s", "Per second, minute (/m) or hour (/h).").show())
                    (field("timeout", "Timeout", "15s", "For one whole attempt.").show())
                    (scheme(fields))
                    (field("header_prefix", "Header prefix", "X-Webhook-", "Only for hmac-sha256-hex.").show())
                    (field("headers", "Headers", "x-team: billing", "One per line, sent with every attempt. **** keeps what was there.").show())
                }
            }
            div.actions {
                button.primary type="submit" { @if new { "Add the endpoint" } @else { "Save" } }
                a.button href={ @if new { "/endpoints" } @else { (path) } } { "Back" }
            }
        }
    }
}

fn scheme(fields: &Fields) -> Markup {
    let chosen = fields.text("signature");
    let words =
        [("", "as the server does it"), (STANDARD, "Standard Webhooks"), ("hmac-sha256-hex", "HMAC-SHA256, hex")];
    html! {
        div.field {
            label for="signature" { "Signature" }
            select #signature name="signature" aria-describedby="signature-help" {
                @for (value, words) in words { option value=(value) selected[chosen == value] { (words) } }
            }
            p #signature-help.fineprint { "How receivers can tell that an event is yours." }
        }
    }
}

/// The endpoint that the form describes.
pub(super) fn new_endpoint(fields: &Fields) -> Result<NewEndpoint, Problem> {
    let patch = patch(fields)?;
    Ok(NewEndpoint {
        url: fields.text("url").to_owned(),
        event_types: given(patch.event_types),
        secret: fields.given("secret").map(Confidential),
        retry_schedule: given(patch.retry_schedule),
        max_attempts: given(patch.max_attempts),
        max_in_flight: given(patch.max_in_flight),
        rate_limit: given(patch.rate_limit),
        timeout: given(patch.timeout),
        signature: given(patch.signature),
        headers: given(patch.headers),
        description: given(patch.description),
    })
}

/// What the form says about everything that can be changed. What was left empty is the server's default.
pub(super) fn patch(fields: &Fields) -> Result<EndpointPatch, Problem> {
    Ok(EndpointPatch {
        url: Some(fields.text("url").to_owned()),
        event_types: patched(Some(fields.lines("event_types")).filter(|lines| !lines.is_empty())),
        retry_schedule: patched(fields.given("retry_schedule").map(|text| delays(&text))),
        max_attempts: patched(fields.number("max_attempts")?),
        max_in_flight: patched(fields.number("max_in_flight")?),
        rate_limit: patched(fields.given("rate_limit")),
        timeout: patched(fields.given("timeout")),
        signature: patched(signature(fields)),
        headers: patched(Some(headers(fields)?).filter(|headers| !headers.is_empty())),
        description: patched(fields.given("description")),
    })
}

fn patched<T>(value: Option<T>) -> Patched<T> {
    value.map_or(Patched::Default, Patched::To)
}

fn given<T>(patched: Patched<T>) -> Option<T> {
    match patched {
        Patched::To(value) => Some(value),
        Patched::Unchanged | Patched::Default => None,
    }
}

fn delays(text: &str) -> Vec<String> {
    text.split([',', ' ']).map(str::trim).filter(|delay| !delay.is_empty()).map(str::to_owned).collect()
}

fn signature(fields: &Fields) -> Option<Signature> {
    let scheme = fields.given("signature")?;
    if scheme == STANDARD {
        return Some(Signature::Name(scheme));
    }
    let (header_prefix, signed) = (fields.given("header_prefix"), fields.given("signed"));
    Some(Signature::Table(SignatureTable { scheme, header_prefix, signed }))
}

fn headers(fields: &Fields) -> Result<BTreeMap<String, String>, Problem> {
    let parse = |line: String| match line.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Err(Problem::new(422, "header_invalid", "a header is written as `name: value`").about("headers")),
    };
    fields.lines("headers").into_iter().map(parse).collect()
}

/// An endpoint as its form shows it.
pub(super) fn fields_of(endpoint: &Endpoint) -> Fields {
    let (scheme, prefix, signed) = match &endpoint.signature {
        None => (String::new(), None, None),
        Some(Signature::Name(name)) => (name.clone(), None, None),
        Some(Signature::Table(table)) => (table.scheme.clone(), table.header_prefix.clone(), table.signed.clone()),
    };
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let headers: Vec<String> = endpoint.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    Fields::from([
        ("url", endpoint.url.clone()),
        ("description", endpoint.description.clone()),
        ("event_types", endpoint.event_types.join("\n")),
        ("retry_schedule", endpoint.retry_schedule.as_deref().map(|delays| delays.join(", ")).unwrap_or_default()),
        ("max_attempts", number(endpoint.max_attempts)),
        ("max_in_flight", number(endpoint.max_in_flight)),
        ("rate_limit", endpoint.rate_limit.clone().unwrap_or_default()),
        ("timeout", endpoint.timeout.clone().unwrap_or_default()),
        ("signature", scheme),
        ("header_prefix", prefix.unwrap_or_default()),
        ("signed", signed.unwrap_or_default()),
        ("headers", headers.join("\n")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_empty_is_the_default() {
        let fields = Fields::parse(b"url=https%3A%2F%2Fa.example&max_attempts=&event_types=%0D%0A&headers=");
        let patch = patch(&fields).unwrap();
        assert_eq!(patch.event_types, Patched::Default);
        assert_eq!((patch.max_attempts, patch.headers), (Patched::Default, Patched::Default));
        assert_eq!(
            new_endpoint(&fields).unwrap(),
            NewEndpoint { url: "https://a.example".into(), ..NewEndpoint::default() }
        );
    }

    #[test]
    fn lines_lists_and_headers_are_read() {
        let fields = Fields::parse(
            b"url=u&event_types=a.*%0D%0Ab&retry_schedule=1s%2C+2m&headers=x-a%3A+1%3A2&signature=hmac-sha256-hex&header_prefix=X-A-&signed=body",
        );
        let new = new_endpoint(&fields).unwrap();
        assert_eq!(new.event_types.unwrap(), ["a.*", "b"]);
        assert_eq!(new.retry_schedule.unwrap(), ["1s", "2m"]);
        assert_eq!(new.headers.unwrap()["x-a"], "1:2");
        let Some(Signature::Table(table)) = new.signature else { panic!("a table") };
        assert_eq!((table.header_prefix.as_deref(), table.signed.as_deref()), (Some("X-A-"), Some("body")));
        let wrong = Fields::parse(b"url=u&headers=nonsense");
        assert_eq!(new_endpoint(&wrong).unwrap_err().errors[0].field, "headers");
    }
}
