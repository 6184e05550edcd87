//! Once-only claims: the list, who has claimed a subject, and the next generation.

use axum::response::Response;
use maud::{Markup, html};
use postrider::Scope;
use url::form_urlencoded;

use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::query::{Fields, Query, link};
use super::time::number;
use super::viewer::Look;
use super::{parts, time};
use crate::api::once::{OnceClaim, OnceQuery};
use crate::api::{Listing, Problem};
use crate::service::Tenancy;

/// By what the list is narrowed.
const FILTERS: [&str; 1] = ["prefix"];

/// Everything that is claimed, or with `subject` how that one stands.
pub(super) async fn show(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    match fields.text("subject") {
        "" => list(&look, &fields).await,
        subject => subject_page(&look, subject).await,
    }
}

async fn list(look: &Look, fields: &Fields) -> Result<Response, Problem> {
    let query = OnceQuery { prefix: fields.given("prefix"), limit: None, cursor: fields.given("cursor") };
    let (listing, problem) = match look.service().once_claims(look.caller(), &query).await {
        Ok(listing) => (listing, None),
        Err(problem) if problem.status == 422 => (Listing { data: Vec::new(), next_cursor: None }, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let paged = !fields.text("cursor").is_empty();
    let narrowed = paged || query.prefix.is_some();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/once", &FILTERS, &[("cursor", it)]));
    let first = paged.then(|| fields.link("/once", &FILTERS, &[]));
    let more = next.as_deref().filter(|_| !listing.data.is_empty());
    let body = html! {
        header.title { h1 { "Once-only claims" } }
        p.intro { "Of all events that are sent for one subject, one is kept: whoever is first claims it, until the next generation begins." }
        form.filters action="/once" role="search" aria-label="Narrow the list" {
            div.field.wide {
                label for="prefix" { "Subject begins with" }
                input #prefix name="prefix" value=(fields.text("prefix")) placeholder="plan/" autocomplete="off" spellcheck="false";
            }
            div.field.go { button type="submit" { "Show" } }
        }
        @if let Some(problem) = &problem { (parts::complaint(problem)) }
        div #rows data-live[!paged] {
            @if !listing.data.is_empty() { (table(look, &listing.data)) }
            @else if let Some(next) = &next { (parts::none_so_far("subjects", next)) }
            @else if problem.is_none() && narrowed { (nothing(fields.text("prefix"))) }
            @else if problem.is_none() { (how(look)) }
        }
        (parts::named_pager((first.as_deref(), "First"), (more, "Next")))
        (parts::curl(look, &fields.link("/v1/once", &FILTERS, &[])))
    };
    Ok(look.page(Section::Once, "Once-only claims", &body))
}

fn table(look: &Look, rows: &[OnceClaim]) -> Markup {
    let tenants = look.viewer.sees_all();
    html! {
        div.scroll {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Subject" }
                        @if tenants { th scope="col" { "Tenant" } }
                        th.count scope="col" { "Generation" }
                        th scope="col" { "Claimed by" }
                        th scope="col" { "Type" }
                        th scope="col" { "Since" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th.long scope="row" data-label="Subject" {
                                // Among all tenants it would not be known whose it is.
                                @if tenants { (row.subject) }
                                @else { a href=(link("/once", [("subject", row.subject.as_str())])) { (row.subject) } }
                            }
                            @if tenants { td data-label="Tenant" { (row.tenant) } }
                            td.count data-label="Generation" { (number(row.generation)) }
                            @if let Some(winner) = &row.winner {
                                td data-label="Claimed by" { a href={ "/events/" (winner.event_id) } { (parts::short(winner.event_id)) } }
                                td data-label="Type" { (winner.event_type) }
                                td.when data-label="Since" { (time::ago(winner.claimed_at, look.now)) }
                            } @else {
                                td data-label="Claimed by" { "nobody yet" }
                                td data-label="Type" { span.none { "–" } }
                                td.when data-label="Since" { span.none { "–" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn nothing(prefix: &str) -> Markup {
    let body = html! {
        p { "Subjects are compared to the letter, also in capitals." }
        p.actions { a.button href="/once" { "Show all" } }
    };
    match prefix {
        "" => parts::empty("There are no more", &body),
        prefix => parts::empty(&format!("No subject begins with {prefix}"), &body),
    }
}

async fn subject_page(look: &Look, subject: &str) -> Result<Response, Problem> {
    let found = if look.caller().tenant == Tenancy::All {
        Err(ambiguous(subject))
    } else {
        look.service().once(look.caller(), subject).await
    };
    let found = match found {
        Err(problem) if problem.status >= 500 => return Err(problem),
        found => found,
    };
    let body = html! {
        header.title {
            div { p.eyebrow { a href="/once" { "Once-only claims" } } h1.long { (subject) } p { (parts::copyable(subject)) } }
        }
        div #claim data-live {
            @match &found {
                Err(problem) if problem.status == 404 => (unclaimed()),
                Err(problem) => (parts::complaint(problem)),
                Ok(claim) => (one(look, claim)),
            }
        }
        (parts::curl(look, &format!("/v1/once/{}", escaped(subject))))
    };
    Ok(look.page(Section::Once, subject, &body))
}

/// As one part of a path.
fn escaped(subject: &str) -> String {
    form_urlencoded::byte_serialize(subject.as_bytes()).collect::<String>().replace('+', "%20")
}

fn ambiguous(subject: &str) -> Problem {
    let detail = format!("`{subject}` is one tenant's subject, and every tenant may have one of that name");
    Problem::new(422, "tenant_ambiguous", detail).hint("choose one tenant at the top of the page")
}

fn how(look: &Look) -> Markup {
    let key = if look.viewer.dev { "" } else { " -H \"Authorization: Bearer $POSTRIDER_API_KEY\"" };
    let send = format!(
        "curl{key} -H 'Content-Type: application/json' '{}/v1/events' -d '{{\"type\":\"plan.due\",\"payload\":{{}},\"once\":{{\"subject\":\"plan/123\"}}}}'",
        look.base
    );
    let body = html! {
        p { "An event claims a subject when it is sent like this:" }
        (parts::command(&send))
    };
    parts::empty("Nothing is claimed yet", &body)
}

fn unclaimed() -> Markup {
    let body = html! { p { "The next event that is sent for it is kept, and claims it." } };
    parts::empty("Nobody has claimed it", &body)
}

fn one(look: &Look, claim: &OnceClaim) -> Markup {
    let says = html! {
        input type="hidden" name="subject" value=(claim.subject);
        p { "Generation " (claim.generation + 1) " begins, and the next event that is sent for this subject is kept." }
    };
    html! {
        section.panel-like aria-label="How it stands" {
            dl.facts {
                (parts::fact("Generation", &html! { (claim.generation) }))
                @match &claim.winner {
                    Some(winner) => {
                        (parts::fact("Claimed by", &html! { a href={ "/events/" (winner.event_id) } { (parts::short(winner.event_id)) } }))
                        (parts::fact("Type", &html! { (winner.event_type) }))
                        (parts::fact("Since", &time::ago(winner.claimed_at, look.now)))
                    }
                    None => (parts::fact("Claimed by", &html! { "nobody yet in this generation" })),
                }
            }
            @if look.viewer.may(Scope::Write) {
                div.actions { (parts::considered(&look.viewer, "/once/reset", "Begin the next generation…", &says, "Begin it")) }
            } @else { (parts::only_looking(&look.viewer)) }
        }
    }
}

pub(super) async fn reset(form: Form<Writers>) -> Result<Response, Problem> {
    let (look, subject) = (&form.look, form.fields.text("subject"));
    let claim = look.service().reset_once(look.caller(), subject).await?;
    let flash = Flash::done(format!("Generation {} has begun.", claim.generation));
    Ok(look.done(&link("/once", [("subject", subject)]), &flash))
}
