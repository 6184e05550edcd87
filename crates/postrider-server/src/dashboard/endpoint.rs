//! One endpoint: how it is, and what can be done about it.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use postrider::{EndpointId, EndpointStatus, Scope};

use super::endpoints::{Health, event_types, failing_since};
use super::flash::Flash;
use super::form::{Form, Writers};
use super::layout::Section;
use super::query::{Fields, link};
use super::viewer::Look;
use super::{deliveries, endpoint_form, parts, time};
use crate::api::Problem;
use crate::api::deliveries::DeliveryQuery;
use crate::api::endpoints::{Endpoint, RotateRequest, Signature};
use crate::http::Id;

/// How many deliveries are shown.
const LATEST: u32 = 10;

pub(super) async fn show(look: Look, Id(id): Id<EndpointId>) -> Result<Response, Problem> {
    let endpoint = look.service().endpoint(look.caller(), id).await?;
    let latest = DeliveryQuery { endpoint_id: Some(id.to_string()), limit: Some(LATEST), ..DeliveryQuery::default() };
    let (health, latest) = tokio::join!(Health::of(&look, id), look.service().deliveries(look.caller(), &latest));
    let (health, latest) = (health?, latest?);
    let all = link("/deliveries", [("endpoint_id", id.to_string().as_str())]);
    let body = html! {
        header.title {
            div {
                p.eyebrow { "Endpoint" }
                h1.long { (parts::address(&endpoint.url)) }
                p { (parts::copyable(&id.to_string())) }
            }
            div #state data-live { (parts::endpoint_status(endpoint.status)) }
        }
        @if !endpoint.description.is_empty() { p.intro { (endpoint.description) } }
        div #trouble data-live { (trouble(&look, &endpoint)) }
        @if look.viewer.may(Scope::Write) { div.actions { (actions(&look, &endpoint)) } } @else { (parts::only_looking(&look.viewer)) }
        dl.facts {
            (parts::fact("Latest", &html! { span #health data-live { (health.show()) } }))
            (parts::fact("Event types", &event_types(&endpoint.event_types)))
            (facts(&look, &endpoint))
        }
        section aria-labelledby="latest" {
            div.heading { h2 #latest { "Latest deliveries" } a href=(all) { "All of its deliveries" } }
            div #rows data-live {
                @if latest.data.is_empty() { (nothing(&look, &endpoint)) }
                @else { (deliveries::table(&look, &latest.data)) }
            }
        }
        (parts::curl(&look, &format!("/v1/endpoints/{id}")))
    };
    Ok(look.page(Section::Endpoints, &endpoint.url, &body))
}

fn trouble(look: &Look, endpoint: &Endpoint) -> Markup {
    html! {
        @if let Some(trouble) = &endpoint.trouble {
            div.notice.bad { p { "Nothing is sent: its settings cannot be read." } p.fineprint { (trouble) } }
        }
        @if endpoint.status != EndpointStatus::Active {
            div.notice.wait {
                p {
                    @if endpoint.status == EndpointStatus::Paused { "It is paused: its deliveries wait, and new ones join them." }
                    @else { "It is disabled: its deliveries wait, and new events pass it by." }
                }
                @if let Some(reason) = &endpoint.status_reason { p.fineprint { (reason) } }
            }
        } @else if let Some(since) = failing_since(look, endpoint) {
            div.notice.wait { p { "Every attempt fails. That began " (time::ago(since, look.now)) "." } }
        }
    }
}

fn nothing(look: &Look, endpoint: &Endpoint) -> Markup {
    let body = html! {
        p { "Nothing was sent to it yet. A test event goes to this endpoint alone, whatever event types it wants." }
        @if look.viewer.may(Scope::Write) {
            (parts::action(&look.viewer, &format!("/endpoints/{}/test", endpoint.id), "Send a test event", "primary"))
        }
    };
    parts::empty("No deliveries yet", &body)
}

fn actions(look: &Look, endpoint: &Endpoint) -> Markup {
    let viewer = &look.viewer;
    let path = |what: &str| format!("/endpoints/{}/{what}", endpoint.id);
    let pause = html! {
        p { "Its deliveries wait until it is resumed. Nothing is lost." }
        div.field {
            label for="reason" { "Why? It is shown here and in the audit trail." }
            input #reason name="reason" maxlength="1000" placeholder="the receiver moves house";
        }
    };
    let rotate = html! {
        p { "A new secret signs from now on, and is shown once. The one before signs beside it for a while, so that receivers can change over." }
        div.field {
            label for="overlap" { "For how long?" }
            input #overlap name="overlap" placeholder="24h";
        }
    };
    let remove = html! {
        p { "Its secrets are removed with it. What of its deliveries waits is cancelled. This cannot be taken back." }
    };
    html! {
        (parts::action(viewer, &path("test"), "Send a test event", ""))
        a.button href=(path("edit")) { "Edit" }
        @if endpoint.status == EndpointStatus::Active {
            (parts::considered(viewer, &path("pause"), "Pause…", &pause, "Pause"))
        } @else { (parts::action(viewer, &path("resume"), "Resume", "primary")) }
        (parts::considered(viewer, &path("rotate-secret"), "Rotate secret…", &rotate, "Rotate the secret"))
        (parts::considered(viewer, &path("remove"), "Remove…", &remove, "Remove the endpoint"))
    }
}

fn facts(look: &Look, endpoint: &Endpoint) -> Markup {
    let default = html! { span.none { "as the server does it" } };
    let or_default = |text: Option<String>| text.map_or_else(|| default.clone(), |text| html! { (text) });
    let signature = endpoint.signature.as_ref().map(|signature| match signature {
        Signature::Name(name) => name.clone(),
        Signature::Table(table) => {
            format!("{}, headers {}", table.scheme, table.header_prefix.as_deref().unwrap_or("X-Webhook-"))
        }
    });
    html! {
        @if look.viewer.sees_all() { (parts::fact("Tenant", &html! { (endpoint.tenant) })) }
        (parts::fact("Retry schedule", &or_default(endpoint.retry_schedule.as_ref().map(|delays| delays.join(", ")))))
        (parts::fact("Attempts at most", &or_default(endpoint.max_attempts.map(|it| it.to_string()))))
        (parts::fact("In flight at most", &or_default(endpoint.max_in_flight.map(|it| it.to_string()))))
        (parts::fact("Rate limit", &endpoint.rate_limit.as_ref().map_or_else(|| html! { span.none { "none" } }, |it| html! { (it) })))
        (parts::fact("Timeout", &or_default(endpoint.timeout.clone())))
        (parts::fact("Signature", &or_default(signature)))
        @if !endpoint.headers.is_empty() {
            (parts::fact("Headers", &html! { @for (name, value) in &endpoint.headers { code { (name) ": " (value) } br; } }))
        }
        @if let Some(until) = endpoint.secrets_retiring_until.filter(|until| *until > look.now) {
            (parts::fact("Former secret", &html! { "signs beside the new one, ends " (time::countdown(until, look.now)) }))
        }
        (parts::fact("Added", &time::ago(endpoint.created_at, look.now)))
    }
}

pub(super) async fn edit(look: Look, Id(id): Id<EndpointId>) -> Result<Response, Problem> {
    let endpoint = look.service().endpoint(look.caller(), id).await?;
    Ok(form_page(&look, id, StatusCode::OK, &endpoint_form::fields_of(&endpoint), None))
}

fn form_page(look: &Look, id: EndpointId, status: StatusCode, fields: &Fields, problem: Option<&Problem>) -> Response {
    let path = format!("/endpoints/{id}");
    let body = html! {
        header.title { div { p.eyebrow { a href=(path) { (parts::short(id)) } } h1 { "Edit the endpoint" } } }
        @if look.viewer.may(Scope::Write) { (endpoint_form::show(&look.viewer, &path, fields, false, problem)) }
        @else { (parts::only_looking(&look.viewer)) }
    };
    look.page_with(status, Section::Endpoints, "Edit the endpoint", &body)
}

pub(super) async fn update(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    let updated = match endpoint_form::patch(&form.fields) {
        Ok(patch) => look.service().update_endpoint(look.caller(), id, patch).await,
        Err(problem) => Err(problem),
    };
    match updated {
        Ok(_) => Ok(done(look, id, "It is saved. Deliveries that exist keep their destination.")),
        Err(problem) if problem.status == 422 => {
            Ok(form_page(look, id, StatusCode::UNPROCESSABLE_ENTITY, &form.fields, Some(&problem)))
        }
        Err(problem) => Err(problem),
    }
}

pub(super) async fn pause(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().pause_endpoint(look.caller(), id, form.fields.given("reason").as_deref()).await?;
    Ok(done(look, id, "It is paused."))
}

pub(super) async fn resume(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().resume_endpoint(look.caller(), id).await?;
    Ok(done(look, id, "It is active. What waited is sent now."))
}

pub(super) async fn rotate(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    let request = RotateRequest { secret: None, overlap: form.fields.given("overlap") };
    let rotated = look.service().rotate_secret(look.caller(), id, &request).await?;
    let flash = Flash::done("A new secret signs from now on.")
        .with_secret("Receivers verify signatures with", rotated.secret.reveal());
    Ok(look.done(&format!("/endpoints/{id}"), &flash))
}

pub(super) async fn test(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    let enqueued = look.service().test_endpoint(look.caller(), id).await?;
    let path = enqueued.deliveries.first().map(|delivery| format!("/deliveries/{}", delivery.id));
    Ok(look.done(&path.unwrap_or_else(|| format!("/endpoints/{id}")), &Flash::done("The test event is on its way.")))
}

pub(super) async fn remove(Id(id): Id<EndpointId>, form: Form<Writers>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().remove_endpoint(look.caller(), id).await?;
    Ok(look.done("/endpoints", &Flash::done("The endpoint is removed.")))
}

fn done(look: &Look, id: EndpointId, text: &str) -> Response {
    look.done(&format!("/endpoints/{id}"), &Flash::done(text))
}
