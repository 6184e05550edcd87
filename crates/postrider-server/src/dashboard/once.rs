//! Once-only claims: who has claimed a subject, and the next generation.

use axum::response::Response;
use maud::{Markup, html};
use postrider::Scope;

use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::query::{Query, link};
use super::viewer::Look;
use super::{parts, time};
use crate::api::Problem;
use crate::api::once::OnceClaim;
use crate::service::Tenancy;

pub(super) async fn show(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    let subject = fields.text("subject");
    let found = match subject {
        "" => None,
        subject if look.caller().tenant == Tenancy::All => Some(Err(ambiguous(subject))),
        subject => match look.service().once(look.caller(), subject).await {
            Err(problem) if problem.status >= 500 => return Err(problem),
            found => Some(found),
        },
    };
    let body = html! {
        header.title { h1 { "Once-only claims" } }
        p.intro { "Of all events that are sent for one subject, one is kept: whoever is first claims it, until the next generation begins." }
        form.filters action="/once" role="search" aria-label="Find a subject" {
            div.field.wide {
                label for="subject" { "Subject" }
                input #subject name="subject" value=(subject) placeholder="plan/123" required autocomplete="off" spellcheck="false";
            }
            div.field.go { button type="submit" { "Look" } }
        }
        @match &found {
            None => (how(&look)),
            Some(Err(problem)) if problem.status == 404 => (unclaimed(subject)),
            Some(Err(problem)) => (parts::complaint(problem)),
            Some(Ok(claim)) => (one(&look, claim)),
        }
    };
    Ok(look.page(Section::Once, "Once-only claims", &body))
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
        p { "Type the subject that you want to know about. An event claims one when it is sent like this:" }
        (parts::command(&send))
    };
    parts::empty("Which subject?", &body)
}

fn unclaimed(subject: &str) -> Markup {
    let body = html! { p { "The next event that is sent for it is kept, and claims it." } };
    parts::empty(&format!("Nobody has claimed {subject}"), &body)
}

fn one(look: &Look, claim: &OnceClaim) -> Markup {
    let says = html! {
        input type="hidden" name="subject" value=(claim.subject);
        p { "Generation " (claim.generation + 1) " begins, and the next event that is sent for this subject is kept." }
    };
    html! {
        section.panel-like aria-labelledby="claim" {
            h2 #claim { (claim.subject) }
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
