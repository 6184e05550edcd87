//! Dead letters: look, and retry one, some or all.
//!
//! To retry all of very many is done in steps, and each step is a form: the page says how far it has come and sends the next
//! one. So it needs no task that somebody would have to look after, goes on at another server when this one stops, and ends
//! when the page is closed.

use axum::response::Response;
use maud::{Markup, html};
use postrider::{DeliveryStatus, Scope};

use super::deliveries::{self, FILTERS};
use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::parts;
use super::query::{Fields, Query};
use super::time::{counted, number};
use super::viewer::Look;
use crate::api::deliveries::{BulkRetry, DeliveryQuery};
use crate::api::{Listing, Problem};

/// How many one step retries.
const STEP: u32 = 500;

/// No more than are on one page.
const MOST_CHOSEN: usize = 250;

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    let dead = DeliveryQuery { status: Some(DeliveryStatus::Dead.to_string()), ..deliveries::query(&fields) };
    let (listing, problem) = match look.service().deliveries(look.caller(), &dead).await {
        Ok(listing) => (listing, None),
        Err(problem) if problem.status == 422 => (Listing { data: Vec::new(), next_cursor: None }, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let filters = &FILTERS[1..];
    let narrowed = filters.iter().any(|name| !fields.text(name).is_empty());
    let paged = !fields.text("cursor").is_empty();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/dead", filters, &[("cursor", it)]));
    let newest = paged.then(|| fields.link("/dead", filters, &[]));
    let may = look.viewer.may(Scope::Write);
    let chooses_for = may.then_some("chosen-ones");
    let body = html! {
        header.title { h1 { "Dead letters" } }
        p.intro { "No more attempts are made at these. A retry begins a new round of attempts; what was tried stays in the history." }
        (deliveries::filters(&fields, &deliveries::known_endpoints(&look).await, "/dead", false))
        @if let Some(problem) = &problem { (parts::complaint(problem)) }
        div #rows data-live[!paged] {
            @if let (true, Some(next)) = (listing.data.is_empty(), &next) {
                (parts::none_so_far("deliveries", next))
            } @else if listing.data.is_empty() {
                @if problem.is_none() { (nothing(narrowed || paged)) }
            } @else {
                @if may { (actions(&look, &fields, narrowed)) } @else { (parts::only_looking(&look.viewer)) }
                (deliveries::dead_table(&look, &listing.data, chooses_for))
            }
        }
        (parts::pager(newest.as_deref(), next.as_deref().filter(|_| !listing.data.is_empty())))
        (parts::curl(&look, &fields.link("/v1/deliveries", filters, &[("status", "dead")])))
    };
    Ok(look.page(Section::Dead, "Dead letters", &body))
}

fn nothing(narrowed: bool) -> Markup {
    if narrowed {
        let body = html! { p.actions { a.button href="/dead" { "Show all dead letters" } } };
        return parts::empty("No dead letter is like that", &body);
    }
    let body = html! {
        p { "Everything that was sent has arrived, or is still being tried." }
        p { "A delivery dies after its last attempt. How many there are is said by the endpoint, or by " code { "max_attempts" } "." }
    };
    parts::empty("No dead letters", &body)
}

fn actions(look: &Look, fields: &Fields, narrowed: bool) -> Markup {
    let viewer = &look.viewer;
    let all = if narrowed { "Retry all like these…" } else { "Retry all…" };
    html! {
        div.actions {
            form #chosen-ones method="post" action="/dead/retry" {
                (parts::token(viewer))
                button type="submit" { "Retry chosen" }
            }
            details.considered {
                summary.button { (all) }
                form.panel method="post" action="/dead/retry-all" {
                    (parts::token(viewer))
                    (kept(fields))
                    p { "Every dead letter " @if narrowed { "that these filters match " } "becomes due at once, the oldest first." }
                    button.danger type="submit" { "Retry all of them" }
                }
            }
            label.choose-all hidden { input type="checkbox" data-choose-all="chosen-ones"; " Choose all on this page" }
        }
    }
}

/// The filters, carried along.
fn kept(fields: &Fields) -> Markup {
    html! {
        @for name in &FILTERS[1..] {
            @if let Some(value) = fields.given(name) { input type="hidden" name=(name) value=(value); }
        }
    }
}

pub(super) async fn retry_some(form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    let chosen: Vec<&str> = form.fields.all("id").take(MOST_CHOSEN).collect();
    if chosen.is_empty() {
        return Ok(look.done("/dead", &Flash::trouble("None was chosen: tick those that should be retried.")));
    }
    let (mut retried, mut not_now) = (0_u64, None);
    for text in chosen {
        let id = text.parse().map_err(|_| Problem::new(400, "id_invalid", "one of the ids is none"))?;
        match look.service().retry_delivery(look.caller(), id).await {
            Ok(_) => retried += 1,
            // Somebody else may have retried it since the page was made.
            Err(problem) if problem.status < 500 => not_now = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    let done = format!("{} due now.", counted(retried, "delivery is", "deliveries are"));
    let flash = match not_now {
        None => Flash::done(done),
        Some(problem) => Flash::trouble(format!("{done} Others could not be retried: {}.", problem.detail)),
    };
    Ok(look.done("/dead", &flash))
}

pub(super) async fn retry_all(form: Form<Writers>) -> Result<Response, Problem> {
    let (look, fields) = (&form.look, &form.fields);
    let count = |name: &str| fields.text(name).parse::<u64>().ok();
    let done = count("done").unwrap_or_default();
    let left = count("total").map_or(u64::from(STEP), |total| total.saturating_sub(done));
    if left == 0 {
        return Ok(look.done("/dead", &finished(done)));
    }
    let request = BulkRetry {
        status: DeliveryStatus::Dead.to_string(),
        endpoint_id: fields.given("endpoint_id"),
        event_id: fields.given("event_id"),
        event_type: fields.given("event_type"),
        since: fields.given("since"),
        until: fields.given("until"),
        dry_run: false,
        limit: u32::try_from(left).ok().map(|left| left.min(STEP)).or(Some(STEP)),
    };
    let step = look.service().retry_deliveries(look.caller(), &request).await?;
    // What there was in the beginning: what dies again meanwhile is not retried again.
    let total = count("total").unwrap_or(step.matched);
    let done = done + step.retried;
    if done >= total || step.retried == 0 {
        return Ok(look.done("/dead", &finished(done)));
    }
    let body = html! {
        header.title { h1 { "Retrying dead letters" } }
        form.progress method="post" action="/dead/retry-all" data-continue {
            (parts::token(&look.viewer))
            (kept(fields))
            input type="hidden" name="total" value=(total);
            input type="hidden" name="done" value=(done);
            label for="progress" { (number(done)) " of " (number(total)) " are due again" }
            progress #progress value=(done) max=(total) {}
            p.actions { button.primary type="submit" { "Go on" } a.button href="/dead" { "Stop here" } }
        }
    };
    Ok(look.page(Section::Dead, "Retrying dead letters", &body))
}

fn finished(done: u64) -> Flash {
    match done {
        0 => Flash::trouble("There was nothing to retry any more."),
        done => Flash::done(format!("{} due now.", counted(done, "delivery is", "deliveries are"))),
    }
}
