//! Events: the list, one with its payload, and one to be sent.

use axum::response::{IntoResponse as _, Response};
use http::{StatusCode, header};
use maud::{Markup, html};
use postrider::{EventId, Scope};
use serde_json::value::RawValue;

use super::deliveries::known_endpoints;
use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::overview::welcome;
use super::query::{Fields, Query, link};
use super::viewer::Look;
use super::{json_view, parts, time};
use crate::api::events::{EnqueuedEvent, Event, EventRequest, EventsQuery};
use crate::api::{Listing, Problem};
use crate::http::Id;

/// How many are on a page: each comes with its payload.
const ON_A_PAGE: u32 = 25;

/// How many deliveries of one event are shown; the list of deliveries has them all.
const MOST_DELIVERIES: usize = 50;

const FILTERS: [&str; 3] = ["type", "since", "until"];

const EXAMPLE: &str = "{\n  \"invoice\": \"in_42\",\n  \"amount\": 1250\n}";

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    let query = EventsQuery {
        event_type: fields.given("type"),
        since: fields.given("since"),
        until: fields.given("until"),
        limit: Some(ON_A_PAGE),
        cursor: fields.given("cursor"),
    };
    let (listing, problem) = match look.service().events(look.caller(), &query).await {
        Ok(listing) => (listing, None),
        Err(problem) if problem.status == 422 => (Listing { data: Vec::new(), next_cursor: None }, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let paged = !fields.text("cursor").is_empty();
    let narrowed = paged || FILTERS.iter().any(|name| !fields.text(name).is_empty());
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/events", &FILTERS, &[("cursor", it)]));
    let newest = paged.then(|| fields.link("/events", &FILTERS, &[]));
    let body = html! {
        header.title {
            h1 { "Events" }
            @if look.viewer.may(Scope::Write) { a.button.primary href="/events/new" { "Send an event" } }
        }
        form.filters action="/events" role="search" aria-label="Narrow the list" {
            @for (name, label, placeholder) in [("type", "Type", "invoice.paid"), ("since", "Since", "2h, or 2026-02-21"), ("until", "Until", "1h")] {
                div.field {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(fields.text(name)) placeholder=(placeholder) autocomplete="off" spellcheck="false";
                }
            }
            div.field.go { button type="submit" { "Show" } }
        }
        @if let Some(problem) = &problem { (parts::complaint(problem)) }
        div #rows data-live[!paged] {
            @if !listing.data.is_empty() { (table(&look, &listing.data)) }
            @else if let Some(next) = &next { (parts::none_so_far("events", next)) }
            @else if problem.is_none() { (nothing(&look, narrowed).await) }
        }
        (parts::pager(newest.as_deref(), next.as_deref().filter(|_| !listing.data.is_empty())))
        (parts::curl(&look, &fields.link("/v1/events", &FILTERS, &[])))
    };
    Ok(look.page(Section::Events, "Events", &body))
}

async fn nothing(look: &Look, narrowed: bool) -> Markup {
    if narrowed {
        let body = html! { p.actions { a.button href="/events" { "Show all" } } };
        return parts::empty("No event is like that", &body);
    }
    welcome(look, "No events yet", known_endpoints(look).await.is_empty())
}

fn table(look: &Look, rows: &[Event]) -> Markup {
    let tenants = look.viewer.sees_all();
    html! {
        div.scroll {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Event" }
                        @if tenants { th scope="col" { "Tenant" } }
                        th scope="col" { "Type" }
                        th scope="col" { "Payload" }
                        th scope="col" { "Deliveries" }
                        th scope="col" { "Sent" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr id=(row.id) {
                            th scope="row" data-label="Event" { a href={ "/events/" (row.id) } { (parts::short(row.id)) } }
                            @if tenants { td data-label="Tenant" { (row.tenant) } }
                            td data-label="Type" { (row.event_type) }
                            td.payload data-label="Payload" { code { (beginning(row.payload.get())) } }
                            td data-label="Deliveries" { (statuses(row)) }
                            td.when data-label="Sent" { (time::ago(row.created_at, look.now)) }
                        }
                    }
                }
            }
        }
    }
}

/// Enough of a payload to recognise it by.
fn beginning(payload: &str) -> String {
    const SHOWN: usize = 60;
    let mut line: String = payload.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN + 1).collect();
    if line.chars().count() > SHOWN {
        line.pop();
        line.push('…');
    }
    line
}

/// How an event's deliveries stand, in one cell.
fn statuses(event: &Event) -> Markup {
    html! {
        @match event.deliveries.as_slice() {
            [] => span.none { "nobody wants it" },
            [one] => (parts::status(one.status)),
            several => {
                @let delivered = several.iter().filter(|it| it.status == postrider::DeliveryStatus::Delivered).count();
                (delivered) " of " (several.len()) " delivered"
            },
        }
    }
}

pub(super) async fn show(look: Look, Id(id): Id<EventId>) -> Result<Response, Problem> {
    let event = look.service().event(look.caller(), id).await?;
    let metadata = serde_json::to_string(&event.metadata).unwrap_or_default();
    let bytes = event.payload.get().len();
    let body = html! {
        header.title {
            div {
                p.eyebrow { "Event" }
                h1 { (event.event_type) }
                p { (parts::copyable(&id.to_string())) }
            }
        }
        dl.facts {
            (parts::fact("Sent", &time::ago(event.created_at, look.now)))
            @if look.viewer.sees_all() { (parts::fact("Tenant", &html! { (event.tenant) })) }
            (parts::fact("Topic", &html! { (event.topic) }))
            (parts::fact("Payload", &html! { (time::counted(bytes as u64, "byte", "bytes")) }))
        }
        section aria-labelledby="deliveries" {
            h2 #deliveries { "Deliveries" }
            div #rows data-live { (its_deliveries(&look, &event)) }
        }
        section aria-labelledby="payload" {
            div.heading { h2 #payload { "Payload" } a href={ "/events/" (id) "/payload" } { "As it is sent" } }
            (json_view::show(event.payload.get()))
        }
        @if !event.metadata.is_empty() {
            section aria-labelledby="metadata" {
                h2 #metadata { "Metadata" }
                p.fineprint { "Travels with announcements, and never to a receiver." }
                (json_view::show(&metadata))
            }
        }
        (parts::curl(&look, &format!("/v1/events/{id}")))
    };
    Ok(look.page(Section::Events, &format!("Event {id}"), &body))
}

fn its_deliveries(look: &Look, event: &Event) -> Markup {
    if event.deliveries.is_empty() {
        let body = html! {
            p { "No endpoint wanted events of this type when it was sent." }
            @if look.viewer.may(Scope::Write) { p.actions { a.button href="/endpoints/new" { "Add an endpoint" } } }
        };
        return parts::empty("It went to nobody", &body);
    }
    html! {
        ul.plainlist {
            @for delivery in event.deliveries.iter().take(MOST_DELIVERIES) {
                li {
                    (parts::status(delivery.status)) " "
                    a href={ "/deliveries/" (delivery.id) } { (parts::short(delivery.id)) } " "
                    span.long { (parts::address(&delivery.destination_url)) }
                }
            }
        }
        @if event.deliveries.len() > MOST_DELIVERIES {
            p { a href=(link("/deliveries", [("event_id", event.id.to_string().as_str())])) { "All " (event.deliveries.len()) } }
        }
    }
}

/// The very bytes, to be kept in a file.
pub(super) async fn payload(look: Look, Id(id): Id<EventId>) -> Result<Response, Problem> {
    let event = look.service().event(look.caller(), id).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.json\"")),
    ];
    Ok((headers, event.payload.get().to_owned()).into_response())
}

pub(super) async fn new(look: Look) -> Response {
    let fields = Fields::from([("payload", EXAMPLE.to_owned())]);
    form_page(&look, StatusCode::OK, &fields, None)
}

fn form_page(look: &Look, status: StatusCode, fields: &Fields, problem: Option<&Problem>) -> Response {
    let body = html! {
        header.title { h1 { "Send an event" } }
        @if look.viewer.may(Scope::Write) { (event_form(look, fields, problem)) }
        @else { (parts::only_looking(&look.viewer)) }
    };
    look.page_with(status, Section::Events, "Send an event", &body)
}

fn event_form(look: &Look, fields: &Fields, problem: Option<&Problem>) -> Markup {
    html! {
        @if let Some(problem) = problem { (parts::complaint(problem)) }
        form.stack method="post" action="/events" {
            (parts::token(&look.viewer))
            div.field {
                label for="type" { "Type" }
                input #type name="type" required value=(fields.text("type")) placeholder="invoice.paid" spellcheck="false"
                    autocomplete="off" aria-describedby="type-help";
                p #type-help.fineprint { "It goes to every endpoint that wants this type." }
            }
            div.field {
                label for="payload" { "Payload" }
                textarea #payload.code name="payload" rows="10" spellcheck="false" aria-describedby="payload-help" { (fields.raw("payload")) }
                p #payload-help.fineprint { "JSON. Receivers get it byte for byte." }
            }
            div.field {
                label for="subject" { "Only once for" }
                input #subject name="subject" value=(fields.text("subject")) placeholder="plan/123" spellcheck="false"
                    autocomplete="off" aria-describedby="subject-help";
                p #subject-help.fineprint { "If given, it is sent only if nothing was sent for this subject before." }
            }
            div.actions { button.primary type="submit" { "Send" } a.button href="/events" { "Back" } }
        }
    }
}

pub(super) async fn send(form: Form<Writers>) -> Result<Response, Problem> {
    let (look, fields) = (&form.look, &form.fields);
    let sent = match request(fields) {
        Ok(request) => look.service().enqueue(look.caller(), request).await,
        Err(problem) => Err(problem),
    };
    match sent {
        Ok(sent) => Ok(look.done(&place(&sent), &Flash::done(told(&sent)))),
        Err(problem) if matches!(problem.status, 413 | 422) => {
            Ok(form_page(look, StatusCode::UNPROCESSABLE_ENTITY, fields, Some(&problem)))
        }
        Err(problem) => Err(problem),
    }
}

fn request(fields: &Fields) -> Result<EventRequest, Problem> {
    // Browsers send every line break as two characters, whatever was typed.
    let payload = RawValue::from_string(fields.text("payload").replace("\r\n", "\n")).map_err(|error| {
        let detail = format!("the payload is not JSON at line {}, column {}", error.line(), error.column());
        Problem::new(422, "payload_not_json", detail).about("payload")
    })?;
    let once = fields.given("subject").map(|subject| crate::api::events::OnceRequest { subject, generation: None });
    Ok(EventRequest { once, ..EventRequest::new(fields.text("type"), payload) })
}

fn place(sent: &EnqueuedEvent) -> String {
    sent.id.map_or_else(|| "/events".to_owned(), |id| format!("/events/{id}"))
}

fn told(sent: &EnqueuedEvent) -> String {
    match (sent.claimed, sent.deliveries.len()) {
        (Some(false), _) => "Nothing was sent: the subject is claimed already, by this event.".to_owned(),
        (_, 0) => "It is kept, and nobody wants it: no endpoint asks for its type.".to_owned(),
        (_, count) => format!("It is on its way to {}.", time::counted(count as u64, "endpoint", "endpoints")),
    }
}
