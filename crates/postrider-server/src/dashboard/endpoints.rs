//! The list of endpoints with their health, and a new one.

use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use postrider::{DeliveryStatus, EndpointId, Scope};

use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::query::{Fields, Query};
use super::viewer::Look;
use super::{endpoint_form, parts, time};
use crate::api::Problem;
use crate::api::deliveries::DeliveryQuery;
use crate::api::endpoints::{Endpoint, EndpointQuery};

/// How many are on a page: each is asked how its latest deliveries went.
const ON_A_PAGE: u32 = 25;

/// How many of those at once.
const AT_ONCE: usize = 4;

/// By how many deliveries health is told.
const HEALTH: u32 = 24;

/// For how long an endpoint has only failed before that is told: for a moment it happens to everybody.
const WORTH_TELLING: SignedDuration = SignedDuration::from_mins(1);

/// Since when every attempt of an endpoint has failed, if that is worth telling.
pub(super) fn failing_since(look: &Look, endpoint: &Endpoint) -> Option<Timestamp> {
    endpoint.failing_since.filter(|since| look.now.duration_since(*since) >= WORTH_TELLING)
}

/// How the latest deliveries of an endpoint went, oldest first.
pub(super) struct Health(Vec<DeliveryStatus>);

impl Health {
    pub(super) async fn of(look: &Look, id: EndpointId) -> Result<Self, Problem> {
        let query =
            DeliveryQuery { endpoint_id: Some(id.to_string()), limit: Some(HEALTH), ..DeliveryQuery::default() };
        let latest = look.service().deliveries(look.caller(), &query).await?;
        Ok(Self(latest.data.iter().rev().map(|delivery| delivery.status).collect()))
    }

    /// Each delivery is a bar: the better it went, the taller.
    pub(super) fn show(&self) -> Markup {
        let delivered = self.0.iter().filter(|status| **status == DeliveryStatus::Delivered).count();
        let says = format!("{delivered} of the latest {} delivered", self.0.len());
        if self.0.is_empty() {
            return html! { span.none { "nothing sent yet" } };
        }
        let bars = self.0.iter().enumerate().map(|(at, status)| {
            let height = match status {
                DeliveryStatus::Delivered => 16,
                DeliveryStatus::Pending | DeliveryStatus::Cancelled => 6,
                DeliveryStatus::Failed => 10,
                DeliveryStatus::Dead => 4,
            };
            (at * 5, 16 - height, height, parts::tone(*status))
        });
        html! {
            span.health title=(says) {
                svg viewBox={ "0 0 " (HEALTH * 5) " 16" } role="img" aria-label=(says) {
                    @for (x, y, height, tone) in bars { rect class=(tone) x=(x) y=(y) width="3.500" height=(height) rx="1" {} }
                }
                span aria-hidden="true" { (delivered) "/" (self.0.len()) }
            }
        }
    }
}

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    let query =
        EndpointQuery { status: fields.given("status"), limit: Some(ON_A_PAGE), cursor: fields.given("cursor") };
    let listing = look.service().endpoints(look.caller(), &query).await?;
    let ids: Vec<EndpointId> = listing.data.iter().map(|endpoint| endpoint.id).collect();
    let healths: Vec<Result<Health, Problem>> =
        stream::iter(ids).map(|id| Health::of(&look, id)).buffered(AT_ONCE).collect().await;
    let healths = healths.into_iter().collect::<Result<Vec<_>, _>>()?;
    let filters = ["status"];
    let paged = !fields.text("cursor").is_empty();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/endpoints", &filters, &[("cursor", it)]));
    let newest = paged.then(|| fields.link("/endpoints", &filters, &[]));
    let body = html! {
        header.title {
            h1 { "Endpoints" }
            @if look.viewer.may(Scope::Write) { a.button.primary href="/endpoints/new" { "Add an endpoint" } }
        }
        nav.tabs aria-label="Narrow the list" {
            @for (status, name) in [("", "All"), ("active", "Active"), ("paused", "Paused"), ("disabled", "Disabled")] {
                a href=(Fields::from([("status", status.to_owned())]).link("/endpoints", &filters, &[]))
                    aria-current=[(fields.text("status") == status).then_some("true")] { (name) }
            }
        }
        div #rows data-live[!paged] {
            @if listing.data.is_empty() { (nothing(&look, !fields.text("status").is_empty() || paged)) }
            @else { (table(&look, &listing.data, &healths)) }
        }
        (parts::pager(newest.as_deref(), next.as_deref()))
        (parts::curl(&look, &fields.link("/v1/endpoints", &filters, &[])))
    };
    Ok(look.page(Section::Endpoints, "Endpoints", &body))
}

fn nothing(look: &Look, narrowed: bool) -> Markup {
    if narrowed {
        let body = html! { p.actions { a.button href="/endpoints" { "Show all" } } };
        return parts::empty("No endpoint is like that", &body);
    }
    let body = html! {
        p { "An endpoint is a URL that gets the events it wants, signed, and again until it says that it has them." }
        @if look.viewer.may(Scope::Write) { p.actions { a.button.primary href="/endpoints/new" { "Add an endpoint" } } }
        p { "To try it on this machine, start a receiver and register what it prints:" }
        (parts::command("postrider listen"))
    };
    parts::empty("No endpoints yet", &body)
}

fn table(look: &Look, rows: &[Endpoint], healths: &[Health]) -> Markup {
    let tenants = look.viewer.sees_all();
    html! {
        div.scroll {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Endpoint" }
                        @if tenants { th scope="col" { "Tenant" } }
                        th scope="col" { "Status" }
                        th scope="col" { "Event types" }
                        th scope="col" { "Latest deliveries" }
                        th scope="col" { "Added" }
                    }
                }
                tbody {
                    @for (row, health) in rows.iter().zip(healths) {
                        tr id=(row.id) {
                            th.url scope="row" data-label="Endpoint" {
                                a href={ "/endpoints/" (row.id) } { (parts::address(&row.url)) }
                                @if !row.description.is_empty() { p.fineprint { (row.description) } }
                            }
                            @if tenants { td data-label="Tenant" { (row.tenant) } }
                            td data-label="Status" {
                                (parts::endpoint_status(row.status))
                                @if let Some(since) = failing_since(look, row) { p.fineprint { "fails; began " (time::ago(since, look.now)) } }
                            }
                            td data-label="Event types" { (event_types(&row.event_types)) }
                            td data-label="Latest" { (health.show()) }
                            td.when data-label="Added" { (time::ago(row.created_at, look.now)) }
                        }
                    }
                }
            }
        }
    }
}

/// Patterns as tags, not all of very many.
pub(super) fn event_types(patterns: &[String]) -> Markup {
    const SHOWN: usize = 6;
    html! {
        span.tags {
            @for pattern in patterns.iter().take(SHOWN) { span.tag { (pattern) } " " }
            @if patterns.len() > SHOWN { span.fineprint { "and " (patterns.len() - SHOWN) " more" } }
        }
    }
}

pub(super) async fn new(look: Look) -> Response {
    form_page(&look, StatusCode::OK, &Fields::default(), None)
}

fn form_page(look: &Look, status: StatusCode, fields: &Fields, problem: Option<&Problem>) -> Response {
    let body = html! {
        header.title { h1 { "Add an endpoint" } }
        @if look.viewer.may(Scope::Write) { (endpoint_form::show(&look.viewer, "/endpoints", fields, true, problem)) }
        @else { (parts::only_looking(&look.viewer)) }
    };
    look.page_with(status, Section::Endpoints, "Add an endpoint", &body)
}

pub(super) async fn create(form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    let made = match endpoint_form::new_endpoint(&form.fields) {
        Ok(new) => look.service().create_endpoint(look.caller(), new).await,
        Err(problem) => Err(problem),
    };
    match made {
        Ok(made) => {
            let flash = Flash::done("The endpoint is there. Events that it wants are sent to it from now on.")
                .with_secret("Receivers verify signatures with", made.secret.reveal());
            Ok(look.done(&format!("/endpoints/{}", made.endpoint.id), &flash))
        }
        Err(problem) if problem.status == 422 => {
            Ok(form_page(look, StatusCode::UNPROCESSABLE_ENTITY, &form.fields, Some(&problem)))
        }
        Err(problem) => Err(problem),
    }
}
