//! Small things that many pages show.

use std::fmt::Display;

use maud::{Markup, html};
use postrider::{DeliveryStatus, EndpointStatus, PageRequest, Scope};

use super::shell::sentence;
use super::time::number;
use super::viewer::{Look, Viewer};
use crate::api::Problem;
use crate::service::Tenancy;

/// The mark: a post horn.
pub(super) fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" aria-hidden="true" focusable="false" {
            path d="M3 12v4M3 14h13a6.5 6.5 0 1 1-6.5 6.5M16 14c5 0 9-2.500 12-6v18c-2-2.300-4.200-4-6.500-5" {}
        }
    }
}

/// What every form brings along: the session's token, and whose things the page showed.
pub(super) fn token(viewer: &Viewer) -> Markup {
    html! {
        input type="hidden" name="csrf" value=(viewer.csrf);
        input type="hidden" name="tenant" value=(viewer.tenant());
    }
}

/// How something stands: by word, shape and colour.
fn badge(tone: &str, word: &str) -> Markup {
    let shape = match tone {
        "good" => "M3 8.500l3.500 3.500L13 4.500",
        "wait" => "M8 2.500L14 13H2z",
        "bad" => "M4 4l8 8M12 4l-8 8",
        "quiet" => "M3 8h10",
        _ => "M8 3.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 1 0 0-9z",
    };
    html! {
        span class={ "badge " (tone) } {
            svg viewBox="0 0 16 16" aria-hidden="true" focusable="false" { path d=(shape) {} }
            (word)
        }
    }
}

/// The colour of a delivery's status, which is never all that tells it.
pub(super) const fn tone(status: DeliveryStatus) -> &'static str {
    match status {
        DeliveryStatus::Pending => "open",
        DeliveryStatus::Failed => "wait",
        DeliveryStatus::Delivered => "good",
        DeliveryStatus::Dead => "bad",
        DeliveryStatus::Cancelled => "quiet",
    }
}

pub(super) fn status(status: DeliveryStatus) -> Markup {
    badge(tone(status), status.as_str())
}

pub(super) fn endpoint_status(status: EndpointStatus) -> Markup {
    match status {
        EndpointStatus::Active => badge("good", "active"),
        EndpointStatus::Paused => badge("wait", "paused"),
        EndpointStatus::Disabled => badge("bad", "disabled"),
    }
}

/// What came of an attempt.
pub(super) fn outcome(good: bool, word: &str) -> Markup {
    badge(if good { "good" } else { "bad" }, word)
}

pub(super) fn scope(scope: Scope) -> Markup {
    html! { span.tag { (scope) } }
}

/// A text with a button that copies it; without a script there is only the text.
pub(super) fn copyable(text: &str) -> Markup {
    html! {
        span.copyable { code { (text) } (copy_button(text)) }
    }
}

fn copy_button(text: &str) -> Markup {
    html! {
        button.copy type="button" data-copy=(text) hidden {
            svg viewBox="0 0 16 16" aria-hidden="true" focusable="false" {
                path d="M5.500 5.500V2.500h8v8h-3M2.500 5.500h8v8h-8z" {}
            }
            span.visually-hidden { "Copy" }
        }
    }
}

/// An id: its end is what tells it from its neighbours.
pub(super) fn short(id: impl Display) -> Markup {
    let text = id.to_string();
    let (prefix, rest) = text.split_once('_').unwrap_or(("", &text));
    let tail = rest.get(rest.len().saturating_sub(8)..).unwrap_or(rest);
    html! { code.id title=(text) { (prefix) "_…" (tail) } }
}

/// A URL that breaks where people would break it.
pub(super) fn address(url: &str) -> Markup {
    let scheme = url.find("://").map_or(0, |at| at + 3);
    let (head, rest) = url.split_at(scheme);
    html! {
        (head)
        @for part in rest.split_inclusive(['/', '?', '&']) { (part) wbr; }
    }
}

/// A command that can be copied.
pub(super) fn command(text: &str) -> Markup {
    html! {
        div.command { pre tabindex="0" { code { (text) } } (copy_button(text)) }
    }
}

/// The same things by the API, for whoever goes on in a terminal.
pub(super) fn curl(look: &Look, path: &str) -> Markup {
    let tenant = match &look.viewer.caller.tenant {
        Tenancy::One(tenant) if look.viewer.caller.any_tenant => format!(" -H 'Postrider-Tenant: {}'", quoted(tenant)),
        _ => String::new(),
    };
    let key = if look.viewer.dev { "" } else { " -H \"Authorization: Bearer $POSTRIDER_API_KEY\"" };
    html! {
        details.curl {
            summary { "The same by the API" }
            (command(&format!("curl{key}{tenant} '{}{path}'", look.base)))
        }
    }
}

/// Within single quotes of a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

/// Where there is nothing: what to do next.
pub(super) fn empty(title: &str, body: &Markup) -> Markup {
    html! { div.empty { h2 { (title) } (body) } }
}

/// The way to the next page of a list, and back to its beginning.
pub(super) fn pager(first: Option<&str>, next: Option<&str>) -> Markup {
    named_pager((first, "Newest"), (next, "Older"))
}

/// The same, of a list that is not in the order of time.
pub(super) fn named_pager(first: (Option<&str>, &str), next: (Option<&str>, &str)) -> Markup {
    html! {
        @if first.0.is_some() || next.0.is_some() {
            nav.pager aria-label="Pages" {
                @if let (Some(path), name) = first { a.button href=(path) { (name) } }
                @if let (Some(path), name) = next { a.button href=(path) rel="next" { (name) } }
            }
        }
    }
}

/// Where none matches of all that are looked at for one page, and there are more.
pub(super) fn none_so_far(what: &str, next: &str) -> Markup {
    let looked_at = number(PageRequest::LOOKED_AT.into());
    let body = html! {
        p { "None of the " (looked_at) " " (what) " that were looked at is like that. The others were not looked at yet." }
        p.actions { a.button.primary href=(next) rel="next" { "Look further" } }
    };
    empty("Nothing found so far", &body)
}

/// One row of facts.
pub(super) fn fact(name: &str, value: &Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// A remark in which names stand between backticks, as the API and the log write them, as a sentence with code in it.
pub(super) fn remark(text: &str) -> Markup {
    let text = sentence(text);
    // One that is not closed is only a character.
    if text.matches('`').count() % 2 == 1 {
        return html! { (text) };
    }
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// What is wrong with a form, above it.
pub(super) fn complaint(problem: &Problem) -> Markup {
    html! {
        div.notice.bad role="alert" {
            p { (remark(&problem.detail)) }
            @if let Some(hint) = &problem.hint { p.fineprint { (remark(hint)) } }
        }
    }
}

/// Why there are no buttons.
pub(super) fn only_looking(viewer: &Viewer) -> Markup {
    html! {
        p.fineprint {
            @if viewer.sees_all() { "You look at all tenants at once. Choose one to change something." }
            @else { "The key that you are signed in with may look, and not change anything." }
        }
    }
}

/// A button that does something at once.
pub(super) fn action(viewer: &Viewer, path: &str, name: &str, class: &str) -> Markup {
    html! {
        form method="post" action=(path) {
            (token(viewer))
            button class=(class) type="submit" { (name) }
        }
    }
}

/// A button that first says what it will do.
pub(super) fn considered(viewer: &Viewer, path: &str, name: &str, says: &Markup, confirm: &str) -> Markup {
    html! {
        details.considered {
            summary.button { (name) }
            form.panel method="post" action=(path) {
                (token(viewer))
                (says)
                button.danger type="submit" { (confirm) }
            }
        }
    }
}
