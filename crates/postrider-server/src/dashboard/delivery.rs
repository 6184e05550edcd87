//! One delivery: how it stands and why, what happens next, and every attempt.

use axum::response::Response;
use maud::{Markup, html};
use postrider::{DeliveryId, DeliveryStatus, OutcomeKind, Scope};

use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::shell::sentence;
use super::time::{counted, milliseconds};
use super::viewer::Look;
use super::{parts, time};
use crate::api::Problem;
use crate::api::deliveries::{Attempt, Delivery, DeliveryDetail};
use crate::api::why::Why;
use crate::http::Id;

pub(super) async fn show(look: Look, Id(id): Id<DeliveryId>) -> Result<Response, Problem> {
    let (service, caller) = (look.service(), look.caller());
    let (detail, why) = tokio::join!(service.delivery(caller, id), service.why(caller, id));
    let (detail, why) = (detail?, why?);
    let delivery = &detail.delivery;
    let section = if delivery.status == DeliveryStatus::Dead { Section::Dead } else { Section::Deliveries };
    let body = html! {
        header.title {
            div {
                p.eyebrow { "Delivery" }
                h1 { (delivery.event_type) }
                p { (parts::copyable(&id.to_string())) }
            }
            div #state data-live { (parts::status(delivery.status)) }
        }
        div #why data-live { (explanation(&look, delivery, &why)) }
        div #actions.actions data-live { (actions(&look, delivery)) }
        div #facts data-live { (facts(&look, delivery)) }
        section aria-labelledby="attempts" {
            h2 #attempts { "Attempts" }
            div #timeline data-live { (timeline(&look, &detail)) }
        }
        (parts::curl(&look, &format!("/v1/deliveries/{id}")))
    };
    Ok(look.page(section, &format!("Delivery {id}"), &body))
}

fn explanation(look: &Look, delivery: &Delivery, why: &Why) -> Markup {
    let waits_until = delivery.next_attempt_at.filter(|at| *at > look.now && delivery.lease_owner.is_none());
    html! {
        section class={ "why " (parts::tone(delivery.status)) } aria-label="Why" {
            p.lead { (why.summary) }
            @if let Some(at) = waits_until.filter(|_| !delivery.status.is_settled()) {
                p.next { "Next attempt " b { (time::countdown(at, look.now)) } }
            }
            @if !why.facts.is_empty() {
                details { summary { "What that follows from" } ul { @for fact in &why.facts { li { (sentence(fact)) } } } }
            }
        }
    }
}

fn actions(look: &Look, delivery: &Delivery) -> Markup {
    let viewer = &look.viewer;
    let retryable =
        matches!(delivery.status, DeliveryStatus::Dead | DeliveryStatus::Failed | DeliveryStatus::Cancelled);
    let open = !delivery.status.is_settled();
    if !retryable && !open {
        return html! {};
    }
    if !viewer.may(Scope::Write) {
        return parts::only_looking(viewer);
    }
    let path = format!("/deliveries/{}", delivery.id);
    let says = html! {
        p { "An attempt that is under way goes on, but its result is not taken." }
        div.field {
            label for="reason" { "Why? It is kept with the delivery." }
            input #reason name="reason" maxlength="1000" placeholder="the customer has left";
        }
    };
    html! {
        @if retryable && delivery.lease_owner.is_none() {
            (parts::action(viewer, &format!("{path}/retry"), "Retry now", "primary"))
        }
        @if open { (parts::considered(viewer, &format!("{path}/cancel"), "Cancel…", &says, "Cancel the delivery")) }
    }
}

fn facts(look: &Look, delivery: &Delivery) -> Markup {
    let rounds = match delivery.earlier_attempts {
        0 => delivery.attempt_count.to_string(),
        earlier => format!("{} in this round, {earlier} before", delivery.attempt_count),
    };
    html! {
        dl.facts {
            (parts::fact("Event", &html! { a href={ "/events/" (delivery.event_id) } { (parts::short(delivery.event_id)) } }))
            @match delivery.endpoint_id {
                Some(id) => (parts::fact("Endpoint", &html! { a href={ "/endpoints/" (id) } { (parts::short(id)) } })),
                None => (parts::fact("Endpoint", &html! { "none: the event named its destination" })),
            }
            (parts::fact("Destination", &html! { span.long { (parts::address(&delivery.destination_url)) } }))
            @if look.viewer.sees_all() { (parts::fact("Tenant", &html! { (delivery.tenant) })) }
            (parts::fact("Created", &time::ago(delivery.created_at, look.now)))
            (parts::fact("Attempts", &html! { (rounds) }))
            @if let Some(at) = delivery.last_attempted_at { (parts::fact("Last attempt", &time::ago(at, look.now))) }
            @if let (Some(owner), Some(until)) = (&delivery.lease_owner, delivery.lease_until) {
                (parts::fact("Held by", &html! { code { (owner) } ", until " (time::countdown(until, look.now)) }))
            }
            @if delivery.abandoned_count > 0 {
                (parts::fact("Abandoned", &html! { (counted(delivery.abandoned_count.into(), "time", "times")) " in a row" }))
            }
        }
    }
}

fn timeline(look: &Look, detail: &DeliveryDetail) -> Markup {
    let delivery = &detail.delivery;
    let waits = !delivery.status.is_settled();
    html! {
        @if detail.attempts.is_empty() && !waits { p.fineprint { "None was made." } }
        ol.timeline reversed {
            @if waits {
                li.open {
                    div.what {
                        b { "Attempt " (detail.attempts.len() + 1) }
                        @if let Some(owner) = &delivery.lease_owner { span { "is under way, by " code { (owner) } } }
                        @else if let Some(at) = delivery.next_attempt_at.filter(|at| *at > look.now) {
                            span { (time::countdown(at, look.now)) }
                        } @else { span { "is due" } }
                    }
                }
            }
            @for (at, attempt) in detail.attempts.iter().rev().enumerate() { (one(look, attempt, at == 0)) }
        }
    }
}

fn one(look: &Look, attempt: &Attempt, newest: bool) -> Markup {
    let good =
        attempt.status_code.is_some_and(|code| (200..300).contains(&code)) && attempt.outcome == OutcomeKind::Response;
    let word = match (attempt.outcome, attempt.status_code) {
        (OutcomeKind::Response, Some(code)) => code.to_string(),
        (outcome, _) => outcome.as_str().to_owned(),
    };
    // The failure of an answer is told by its first line, which is shown anyway.
    let excerpt = attempt.response_excerpt.as_deref().filter(|excerpt| !excerpt.trim().is_empty());
    html! {
        li.good[good].bad[!good] {
            div.what {
                b { "Attempt " (attempt.number) }
                (parts::outcome(good, &word))
                span { (time::ago(attempt.started_at, look.now)) }
                span { "took " (milliseconds(attempt.duration_ms.into())) }
                span.worker { "by " code { (attempt.worker_id) } }
            }
            @if let Some(error) = attempt.error_detail.as_deref().filter(|_| !good && excerpt.is_none()) {
                p.error { (sentence(error)) }
            }
            @if let Some(excerpt) = excerpt {
                details open[newest && !good] {
                    summary { "What the receiver answered" }
                    pre.excerpt tabindex="0" { (excerpt) }
                }
            }
        }
    }
}

pub(super) async fn retry(Id(id): Id<DeliveryId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().retry_delivery(look.caller(), id).await?;
    Ok(look.done(&format!("/deliveries/{id}"), &Flash::done("It is due now.")))
}

pub(super) async fn cancel(Id(id): Id<DeliveryId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().cancel_delivery(look.caller(), id, form.fields.given("reason").as_deref()).await?;
    Ok(look.done(&format!("/deliveries/{id}"), &Flash::done("It is cancelled.")))
}
