//! The list of deliveries, and the way to anything by its id.

use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use postrider::{DeliveryId, DeliveryStatus, EndpointId, EventId};

use super::layout::Section;
use super::overview::welcome;
use super::query::{Fields, Query};
use super::viewer::Look;
use super::{parts, time};
use crate::api::deliveries::{Delivery, DeliveryQuery};
use crate::api::endpoints::{Endpoint, EndpointQuery};
use crate::api::{Listing, Problem};

/// How many endpoints are suggested to narrow the list by.
const MOST_SUGGESTED: u32 = 100;

/// By what the list is narrowed.
pub(super) const FILTERS: [&str; 6] = ["status", "endpoint_id", "event_id", "event_type", "since", "until"];

/// The query that a page's address means.
pub(super) fn query(fields: &Fields) -> DeliveryQuery {
    DeliveryQuery {
        status: fields.given("status"),
        endpoint_id: fields.given("endpoint_id"),
        event_id: fields.given("event_id"),
        event_type: fields.given("event_type"),
        since: fields.given("since"),
        until: fields.given("until"),
        limit: None,
        cursor: fields.given("cursor"),
    }
}

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    let found = look.service().deliveries(look.caller(), &query(&fields)).await;
    let (listing, problem) = match found {
        Ok(listing) => (listing, None),
        // A filter that cannot be understood is mended where it was typed.
        Err(problem) if problem.status == 422 => (Listing { data: Vec::new(), next_cursor: None }, Some(problem)),
        Err(problem) => return Err(problem),
    };
    let filtered = FILTERS.iter().any(|name| !fields.text(name).is_empty());
    let paged = !fields.text("cursor").is_empty();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/deliveries", &FILTERS, &[("cursor", it)]));
    let newest = paged.then(|| fields.link("/deliveries", &FILTERS, &[]));
    let body = html! {
        header.title { h1 { "Deliveries" } }
        (filters(&fields, &known_endpoints(&look).await, "/deliveries", true))
        @if let Some(problem) = &problem { (parts::complaint(problem)) }
        div #rows data-live[!paged] {
            @if !listing.data.is_empty() { (table(&look, &listing.data)) }
            @else if let Some(next) = &next { (parts::none_so_far("deliveries", next)) }
            @else if problem.is_none() { (nothing(&look, filtered || paged).await) }
        }
        (parts::pager(newest.as_deref(), next.as_deref().filter(|_| !listing.data.is_empty())))
        (parts::curl(&look, &fields.link("/v1/deliveries", &FILTERS, &[])))
    };
    Ok(look.page(Section::Deliveries, "Deliveries", &body))
}

async fn nothing(look: &Look, narrowed: bool) -> Markup {
    if narrowed {
        let body = html! {
            p { "No delivery is like that. Event types are compared as a whole, and times are when a delivery was made." }
            p.actions { a.button href="/deliveries" { "Show all" } }
        };
        return parts::empty("Nothing found", &body);
    }
    welcome(look, "No deliveries yet", known_endpoints(look).await.is_empty())
}

/// Endpoints that can be chosen from; whoever has more types an id.
pub(super) async fn known_endpoints(look: &Look) -> Vec<Endpoint> {
    let newest = EndpointQuery { limit: Some(MOST_SUGGESTED), ..EndpointQuery::default() };
    // A list without suggestions is still a list.
    look.service().endpoints(look.caller(), &newest).await.map(|endpoints| endpoints.data).unwrap_or_default()
}

/// The filters of a list, as a form.
pub(super) fn filters(fields: &Fields, endpoints: &[Endpoint], path: &str, with_status: bool) -> Markup {
    let input = |name: &str, label: &str, placeholder: &str, list: Option<&str>| {
        html! {
            div.field {
                label for=(name) { (label) }
                input id=(name) name=(name) value=(fields.text(name)) placeholder=(placeholder) list=[list] autocomplete="off"
                    spellcheck="false";
            }
        }
    };
    let detailed = ["event_id", "until"].iter().any(|name| !fields.text(name).is_empty());
    let details = html! {
        (input("until", "Until", "1h", None))
        (input("event_id", "Event", "evt_…", None))
    };
    html! {
        form.filters action=(path) role="search" aria-label="Narrow the list" {
            @if with_status {
                div.field {
                    label for="status" { "Status" }
                    select #status name="status" {
                        option value="" { "any" }
                        @for status in DeliveryStatus::ALL {
                            option value=(status) selected[fields.text("status") == status.as_str()] { (status) }
                        }
                    }
                }
            }
            (input("event_type", "Event type", "invoice.paid", None))
            (input("endpoint_id", "Endpoint", "ep_…", (!endpoints.is_empty()).then_some("endpoints")))
            @if !endpoints.is_empty() {
                datalist #endpoints { @for endpoint in endpoints { option value=(endpoint.id) { (endpoint.url) } } }
            }
            (input("since", "Since", "2h, or 2026-02-21", None))
            @if detailed { (details) } @else { details.more { summary { "More" } div { (details) } } }
            div.field.go { button type="submit" { "Show" } }
        }
    }
}

/// Deliveries as a table.
pub(super) fn table(look: &Look, rows: &[Delivery]) -> Markup {
    let cells = |row: &Delivery| {
        html! {
            td.status data-label="Status" { (parts::status(row.status)) }
            (event_type_and_destination(row))
            td.count data-label="Attempts" { (row.attempt_count + row.earlier_attempts) }
            td.when.made data-label="Created" { (time::ago(row.created_at, look.now)) }
            td.when.next data-label="Next" { (next(look, row)) }
        }
    };
    let columns = html! {
        th scope="col" { "Status" }
        th scope="col" { "Event type" }
        th scope="col" { "Destination" }
        th.count scope="col" { "Attempts" }
        th scope="col" { "Created" }
        th scope="col" { "Next" }
    };
    framed(look, rows, &columns, cells, None)
}

/// Dead letters as a table, with boxes to choose some for the form of this id.
pub(super) fn dead_table(look: &Look, rows: &[Delivery], chooses_for: Option<&str>) -> Markup {
    let cells = |row: &Delivery| {
        html! {
            (event_type_and_destination(row))
            td.payload.failure data-label="Last failure" { code { (row.error_detail.as_deref().unwrap_or("–")) } }
            td.count data-label="Attempts" { (row.attempt_count + row.earlier_attempts) }
            td.when.made data-label="Died" { @if let Some(at) = row.last_attempted_at { (time::ago(at, look.now)) } @else { "–" } }
        }
    };
    let columns = html! {
        th scope="col" { "Event type" }
        th scope="col" { "Destination" }
        th scope="col" { "Last failure" }
        th.count scope="col" { "Attempts" }
        th scope="col" { "Died" }
    };
    framed(look, rows, &columns, cells, chooses_for)
}

/// A table of deliveries, each with its id in front, and its tenant where there are several.
fn framed(
    look: &Look,
    rows: &[Delivery],
    columns: &Markup,
    cells: impl Fn(&Delivery) -> Markup,
    chooses_for: Option<&str>,
) -> Markup {
    let tenants = look.viewer.sees_all();
    html! {
        div.scroll {
            table.rows.deliveries {
                thead {
                    tr {
                        @if chooses_for.is_some() { th.choose scope="col" { span.visually-hidden { "Choose" } } }
                        th scope="col" { "Delivery" }
                        @if tenants { th scope="col" { "Tenant" } }
                        (columns)
                    }
                }
                tbody {
                    @for row in rows {
                        tr id=(row.id) {
                            @if let Some(form) = chooses_for {
                                td.choose data-label="Choose" {
                                    input type="checkbox" name="id" value=(row.id) form=(form) aria-label={ "Choose " (row.id) };
                                }
                            }
                            th scope="row" data-label="Delivery" { a href={ "/deliveries/" (row.id) } { (parts::short(row.id)) } }
                            @if tenants { td data-label="Tenant" { (row.tenant) } }
                            (cells(row))
                        }
                    }
                }
            }
        }
    }
}

fn event_type_and_destination(row: &Delivery) -> Markup {
    html! {
        td.type data-label="Event type" { (row.event_type) }
        td.url data-label="Destination" title=(row.destination_url) { (destination(row)) }
    }
}

fn destination(row: &Delivery) -> Markup {
    let shown = row.destination_url.split_once("://").map_or(row.destination_url.as_str(), |(_, rest)| rest);
    html! {
        @if let Some(endpoint) = row.endpoint_id { a href={ "/endpoints/" (endpoint) } { (parts::address(shown)) } }
        @else { (parts::address(shown)) }
    }
}

/// What happens next to a delivery, in a word or two.
fn next(look: &Look, row: &Delivery) -> Markup {
    html! {
        @if row.lease_owner.is_some() { span.flying { "in flight" } }
        @else if let Some(at) = row.next_attempt_at.filter(|_| !row.status.is_settled()) {
            @if at > look.now { (time::countdown(at, look.now)) } @else { "due" }
        } @else { span.none { "–" } }
    }
}

/// Goes to whatever has this id.
pub(super) async fn find(_: Look, Query(fields): Query) -> Result<Response, Problem> {
    let id = fields.text("id");
    let path = if id.parse::<DeliveryId>().is_ok() {
        "/deliveries"
    } else if id.parse::<EventId>().is_ok() {
        "/events"
    } else if id.parse::<EndpointId>().is_ok() {
        "/endpoints"
    } else {
        let shown: String = id.chars().take(64).collect();
        return Err(Problem::new(
            404,
            "id_invalid",
            format!("`{shown}` is no id of a delivery, an event or an endpoint"),
        )
        .hint("ids look like dlv_01jd8x4k2hf4xr5zt3yq7m9nbw, evt_… or ep_…; they can be copied from lists and logs"));
    };
    Ok(Redirect::to(&format!("{path}/{id}")).into_response())
}
