//! The audit trail: who did what.

use axum::response::Response;
use maud::{Markup, html};
use postrider::Scope;

use super::keys::admins_only;
use super::layout::Section;
use super::query::{Query, link};
use super::viewer::Look;
use super::{parts, time};
use crate::api::Problem;
use crate::api::audit::AuditEntry;
use crate::api::keys::PageQuery;

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    admins_only(&look)?;
    let query = PageQuery { limit: None, cursor: fields.given("cursor") };
    let listing = look.service().audit(look.caller(), &query).await?;
    let paged = !fields.text("cursor").is_empty();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/audit", &[], &[("cursor", it)]));
    let body = html! {
        header.title { h1 { "Audit" } }
        p.intro { "What people and programs did, by the name of the key that they did it with." }
        div #rows data-live[!paged] {
            @if listing.data.is_empty() {
                (parts::empty("Nothing was done yet", &html! { p { "Retries, cancellations and changes of endpoints and keys are kept here." } }))
            } @else { (table(&look, &listing.data)) }
        }
        (parts::pager(paged.then_some("/audit"), next.as_deref()))
        (parts::curl(&look, "/v1/audit"))
    };
    Ok(look.page(Section::Audit, "Audit", &body))
}

fn table(look: &Look, rows: &[AuditEntry]) -> Markup {
    let tenants = look.viewer.scope == Scope::Admin && look.viewer.sees_all();
    html! {
        div.scroll {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "When" }
                        th scope="col" { "What" }
                        th scope="col" { "To which" }
                        @if tenants { th scope="col" { "Tenant" } }
                        th scope="col" { "Who" }
                        th scope="col" { "Why" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            td.when data-label="When" { (time::ago(row.at, look.now)) }
                            th scope="row" data-label="What" { (row.action) }
                            td data-label="To which" { (subject(row, look)) }
                            @if tenants { td data-label="Tenant" { (row.tenant.as_deref().unwrap_or("all")) } }
                            td data-label="Who" { (who(&row.operator)) }
                            td data-label="Why" { (row.reason.as_deref().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
    }
}

/// The name of a key, and its id for whoever needs it.
fn who(operator: &str) -> Markup {
    let key = operator.strip_suffix(')').and_then(|operator| operator.rsplit_once(" (key_"));
    html! {
        @match key {
            Some((name, id)) => span title=(operator) { (name) " " span.fineprint { (parts::short(format_args!("key_{id}"))) } },
            None => (operator),
        }
    }
}

/// A link where there is something to see.
fn subject(row: &AuditEntry, look: &Look) -> Markup {
    let subject = row.subject.as_str();
    if row.action == "once.reset" && !look.viewer.sees_all() {
        return html! { a href=(link("/once", [("subject", subject)])) { code.long { (subject) } } };
    }
    let id = subject.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let path = match subject.split_once('_').map(|(prefix, _)| prefix).filter(|_| id) {
        Some("dlv") => "/deliveries",
        Some("ep") => "/endpoints",
        Some("evt") => "/events",
        Some("key") => return parts::short(subject),
        _ => return html! { code.long { (subject) } },
    };
    html! { a href={ (path) "/" (subject) } { (parts::short(subject)) } }
}
