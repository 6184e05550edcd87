//! How everything stands: figures with plots, what needs somebody, and the latest deliveries.

use axum::response::Response;
use maud::{Markup, html};
use postrider::EndpointStatus;

use super::endpoints::failing_since;
use super::history::{History, Latency};
use super::layout::Section;
use super::plot::{self, Series};
use super::time::{counted, milliseconds, number};
use super::viewer::Look;
use super::{deliveries, parts, time};
use crate::api::Problem;
use crate::api::deliveries::DeliveryQuery;
use crate::api::endpoints::{Endpoint, EndpointQuery};
use crate::api::overview::Overview;

/// How many deliveries are shown.
const LATEST: u32 = 10;

/// How many endpoints are looked through for some that need somebody.
const ENDPOINTS: u32 = 100;

/// How many of those are named.
const MOST_NAMED: usize = 5;

pub(super) async fn show(look: Look) -> Result<Response, Problem> {
    let (service, caller) = (look.service(), look.caller());
    let pulse = look.state.desk().pulses.of(&look.state, &caller.tenant);
    let latest = DeliveryQuery { limit: Some(LATEST), ..DeliveryQuery::default() };
    let endpoints = EndpointQuery { limit: Some(ENDPOINTS), ..EndpointQuery::default() };
    let overview = async {
        match pulse.overview() {
            Some(overview) => Ok(overview),
            None => service.overview(caller).await,
        }
    };
    let (overview, history, latest, endpoints) = tokio::join!(
        overview,
        pulse.history(),
        service.deliveries(caller, &latest),
        service.endpoints(caller, &endpoints),
    );
    let (overview, latest, endpoints) = (overview?, latest?, endpoints?);
    let figures = html! {
        div #figures data-live {
            (totals(&overview))
            (plots(&overview, &history))
            (attention(&look, &overview, &endpoints.data))
        }
    };
    let is_new = latest.data.is_empty();
    let body = html! {
        header.title { h1 { "Overview" } (as_of(&look, &overview)) }
        // Whoever has just begun is told first how to go on.
        @if is_new { div #latest-rows data-live { (welcome(&look, "No deliveries yet", endpoints.data.is_empty())) } }
        (figures)
        @if !is_new {
            section aria-labelledby="latest" {
                div.heading { h2 #latest { "Latest deliveries" } a href="/deliveries" { "All deliveries" } }
                div #latest-rows data-live { (deliveries::table(&look, &latest.data)) }
            }
        }
        (parts::curl(&look, "/v1/overview"))
    };
    Ok(look.page(Section::Overview, "Overview", &body))
}

fn as_of(look: &Look, overview: &Overview) -> Markup {
    html! { p.fineprint #as-of data-live { "Counted " (time::ago(overview.counted_at, look.now)) } }
}

/// Deliveries by status: each is a way to the list of them.
fn totals(overview: &Overview) -> Markup {
    let all = [
        ("delivered", "good", overview.delivered),
        ("pending", "open", overview.pending),
        ("failed", "wait", overview.failed),
        ("dead", "bad", overview.dead),
        ("cancelled", "quiet", overview.cancelled),
    ];
    html! {
        ul.totals aria-label="Deliveries by status" {
            @for (status, tone, count) in all {
                li class=(tone) {
                    a href={ @if status == "dead" { "/dead" } @else { "/deliveries?status=" (status) } } {
                        b { (number(count)) } span { (status) }
                    }
                }
            }
        }
    }
}

/// One figure with its plot.
struct Card<'a> {
    title: &'a str,
    value: String,
    note: Markup,
    series: Vec<Series>,
    /// What the top of the plot is, when it is not the highest value.
    top: Option<f64>,
    /// How a value is written.
    write: fn(f64) -> String,
}

impl Card<'_> {
    fn show(&self) -> Markup {
        let highest = plot::highest(&self.series);
        let top = self.top.or(highest).unwrap_or_default();
        let seen = highest.map_or_else(|| "nothing known yet".to_owned(), |it| format!("highest {}", (self.write)(it)));
        let says = format!("{} over the last 15 minutes: now {}, {seen}", self.title, self.value);
        html! {
            section.card {
                h2 { (self.title) }
                p.value { (self.value) }
                p.note { (self.note) }
                div.drawing {
                    span.top aria-hidden="true" { @if highest.is_some() { ((self.write)(top)) } }
                    (plot::lines(&self.series, top, &says))
                    p.axis aria-hidden="true" { span { "15 min ago" } span { "now" } }
                }
            }
        }
    }
}

fn plots(overview: &Overview, history: &History) -> Markup {
    let line = |class, values, filled| Series { class, values, filled };
    let rates = overview.rates;
    let [delivered, failed, dead] = history.rates();
    let [median, p95] = history.latencies_ms();
    let attempts = rates.delivered_per_minute + rates.failed_per_minute + rates.dead_per_minute;
    let success = percent(rates.delivered_per_minute, attempts);
    let latency = history.latency();
    let cards = [
        Card {
            title: "Delivered per minute",
            value: number(rates.delivered_per_minute),
            note: html! {
                (line_of("wait", &format!("{} failed", number(rates.failed_per_minute)))) " "
                (line_of("bad", &format!("{} died", number(rates.dead_per_minute))))
            },
            series: vec![line("good", delivered, true), line("wait", failed, false), line("bad", dead, false)],
            top: None,
            write: whole,
        },
        Card {
            title: "Success ratio",
            value: success.map_or_else(|| "–".to_owned(), |percent| format!("{percent} %")),
            note: html! {
                @if attempts == 0 { "No attempts in the last minute" }
                @else { "of " (counted(attempts, "attempt", "attempts")) " in the last minute" }
            },
            series: vec![line("good", history.success(), true)],
            top: Some(100.0),
            write: |value| format!("{value:.0} %"),
        },
        Card {
            title: "Latency",
            value: latency.map_or_else(|| "–".to_owned(), |Latency { median_ms, .. }| milliseconds(median_ms)),
            note: latency.map_or_else(
                || html! { "From enqueued to acknowledged" },
                |Latency { p95_ms, .. }| {
                    let most = format!("95 % within {}", milliseconds(p95_ms));
                    html! { (line_of("open", "median")) " " (line_of("quiet", &most)) }
                },
            ),
            series: vec![line("open", median, true), line("quiet", p95, false)],
            top: None,
            write: span,
        },
        Card {
            title: "Due",
            value: number(overview.due),
            note: html! { (number(overview.scheduled)) " scheduled for later" },
            series: vec![line("open", history.due(), true)],
            top: None,
            write: whole,
        },
        Card {
            title: "In flight",
            value: number(overview.in_flight),
            note: html! { "Being attempted now" },
            series: vec![line("open", history.in_flight(), true)],
            top: None,
            write: whole,
        },
        Card {
            title: "Oldest due",
            value: overview.oldest_due_age_ms.map_or_else(|| "–".to_owned(), milliseconds),
            note: match overview.oldest_due_age_ms {
                Some(age) if age > 60_000 => html! { "Paused, limited, or no dispatcher?" },
                Some(_) => html! { "How long it has waited" },
                None => html! { "Nothing waits" },
            },
            series: vec![line("wait", history.oldest_due_ms(), true)],
            top: None,
            write: span,
        },
    ];
    html! {
        div.cards { @for card in cards { (card.show()) } }
    }
}

/// What only somebody can mend.
fn attention(look: &Look, overview: &Overview, endpoints: &[Endpoint]) -> Markup {
    let troubled: Vec<&Endpoint> = endpoints
        .iter()
        .filter(|it| it.status != EndpointStatus::Active || failing_since(look, it).is_some() || it.trouble.is_some())
        .collect();
    if overview.dead == 0 && troubled.is_empty() {
        return html! {};
    }
    html! {
        section.attention aria-labelledby="attention" {
            h2 #attention { "Needs somebody" }
            ul {
                @if overview.dead > 0 {
                    li {
                        a href="/dead" { (counted(overview.dead, "dead letter", "dead letters")) }
                        " waiting to be retried or left."
                    }
                }
                @for endpoint in troubled.iter().take(MOST_NAMED) {
                    li {
                        a href={ "/endpoints/" (endpoint.id) } { (parts::address(&endpoint.url)) } " "
                        @if endpoint.trouble.is_some() { "cannot be read: its secrets were encrypted with another key." }
                        @else if endpoint.status != EndpointStatus::Active {
                            "is " (endpoint.status.as_str())
                            @if let Some(reason) = &endpoint.status_reason { ": " (reason) } "."
                        } @else if let Some(since) = failing_since(look, endpoint) {
                            "fails again and again; that began " (time::ago(since, look.now)) "."
                        }
                    }
                }
                @if troubled.len() > MOST_NAMED {
                    li { a href="/endpoints" { (number((troubled.len() - MOST_NAMED) as u64)) " more endpoints" } }
                }
            }
        }
    }
}

/// For whoever has just begun.
pub(super) fn welcome(look: &Look, title: &str, without_endpoints: bool) -> Markup {
    let first = if without_endpoints {
        html! {
            p { "Nothing was sent yet. First say where events should go:" }
            p.actions { a.button.primary href="/endpoints/new" { "Add an endpoint" } }
            p { "or, in a terminal, start a receiver that shows what arrives:" }
            (parts::command("postrider listen"))
        }
    } else {
        html! {
            p { "There is somewhere to send to, and nothing was sent yet." }
            p.actions { a.button.primary href="/events/new" { "Send an event" } }
        }
    };
    let key = if look.viewer.dev { "" } else { " -H \"Authorization: Bearer $POSTRIDER_API_KEY\"" };
    let send = format!(
        "curl{key} -H 'Content-Type: application/json' '{}/v1/events' -d '{{\"type\":\"invoice.paid\",\"payload\":{{\"amount\":42}}}}'",
        look.base
    );
    parts::empty(title, &html! { (first) p { "The same from a program:" } (parts::command(&send)) })
}

/// What one of the lines of a plot is, with a piece of it.
fn line_of(class: &str, says: &str) -> Markup {
    html! { span class={ "lineof " (class) } { (says) } }
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    (part * 100).checked_div(whole)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count that was a whole number")]
fn whole(value: f64) -> String {
    number(value as u64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds that were a whole number")]
fn span(value: f64) -> String {
    milliseconds(value as u64)
}
