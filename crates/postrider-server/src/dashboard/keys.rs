//! API keys: make, look, revoke.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use postrider::{KeyId, Scope};

use super::flash::Flash;
use super::form::{Admins, Form};
use super::layout::Section;
use super::query::{Fields, Query};
use super::viewer::Look;
use super::{parts, time};
use crate::api::Problem;
use crate::api::endpoints::Patched;
use crate::api::keys::{Key, NewKey, PageQuery};
use crate::http::Id;

/// Pages for whoever may manage keys.
pub(super) fn admins_only(look: &Look) -> Result<(), Problem> {
    if look.viewer.scope == Scope::Admin {
        return Ok(());
    }
    let detail = format!("this needs a key of scope admin, the key's scope is {}", look.viewer.scope);
    Err(Problem::new(403, "scope_insufficient", detail).hint("sign in with a key of that scope"))
}

pub(super) async fn list(look: Look, Query(fields): Query) -> Result<Response, Problem> {
    admins_only(&look)?;
    page(&look, StatusCode::OK, &fields, None).await
}

async fn page(
    look: &Look,
    status: StatusCode,
    fields: &Fields,
    problem: Option<&Problem>,
) -> Result<Response, Problem> {
    let query = PageQuery { limit: None, cursor: fields.given("cursor") };
    let listing = look.service().keys(look.caller(), &query).await?;
    let paged = !fields.text("cursor").is_empty();
    let next = listing.next_cursor.as_deref().map(|it| fields.link("/keys", &[], &[("cursor", it)]));
    let body = html! {
        header.title { h1 { "Keys" } }
        p.intro { "A key lets a program or a person in, for one tenant or for all. What it permits is its scope; each includes those before it: read, write, admin." }
        @if let Some(problem) = problem { (parts::complaint(problem)) }
        (new_key(look, fields, problem.is_some()))
        @if listing.data.is_empty() {
            (parts::empty("No keys of this tenant", &html! { p { "Keys for all tenants are listed when all are looked at: choose tenant " code { "*" } "." } }))
        } @else {
            (table(look, &listing.data))
            @if look.caller().any_tenant && !look.viewer.sees_all() {
                p.fineprint { "These are the keys of tenant " b { (look.viewer.tenant()) } ". Those for all tenants are listed when all are looked at: choose tenant " code { "*" } "." }
            }
        }
        (parts::pager(paged.then_some("/keys"), next.as_deref()))
        (parts::curl(look, "/v1/keys"))
    };
    Ok(look.page_with(status, Section::Keys, "Keys", &body))
}

fn new_key(look: &Look, fields: &Fields, open: bool) -> Markup {
    let any = look.caller().any_tenant;
    html! {
        details.considered.wide open[open] {
            summary.button { "Make a key…" }
            form.panel.pairs method="post" action="/keys" {
                (parts::token(&look.viewer))
                div.field {
                    label for="name" { "Name" }
                    input #name name="name" required maxlength="255" placeholder="billing service" value=(fields.text("name")) autocomplete="off";
                }
                div.field {
                    label for="scope" { "Scope" }
                    select #scope name="scope" {
                        @for scope in Scope::ALL {
                            option value=(scope) selected[fields.text("scope") == scope.as_str()] { (scope) }
                        }
                    }
                }
                @if any {
                    div.field {
                        label for="for" { "For" }
                        select #for name="for" {
                            @if !look.viewer.sees_all() { option value="tenant" { "tenant " (look.viewer.tenant()) } }
                            option value="all" { "all tenants" }
                        }
                    }
                }
                div.actions { button.primary type="submit" { "Make the key" } }
            }
        }
    }
}

fn table(look: &Look, rows: &[Key]) -> Markup {
    html! {
        div.scroll {
            table.rows {
                thead {
                    tr {
                        th scope="col" { "Name" }
                        th scope="col" { "Scope" }
                        th scope="col" { "Tenant" }
                        th scope="col" { "Made" }
                        th scope="col" { "Id" }
                        th scope="col" { span.visually-hidden { "Revoke" } }
                    }
                }
                tbody {
                    @for row in rows {
                        tr.over[row.revoked_at.is_some()] {
                            th scope="row" data-label="Name" { (row.name) }
                            td data-label="Scope" { (parts::scope(row.scope)) }
                            td data-label="Tenant" { (row.tenant.as_deref().unwrap_or("all")) }
                            td.when data-label="Made" { (time::ago(row.created_at, look.now)) }
                            td data-label="Id" { (parts::short(row.id)) }
                            td data-label="" { (revoking(look, row)) }
                        }
                    }
                }
            }
        }
    }
}

fn revoking(look: &Look, row: &Key) -> Markup {
    let says = html! { p { "Whoever uses " b { (row.name) } " is let in no more, here and by the API, and those who signed in with it are out." } };
    html! {
        @if let Some(at) = row.revoked_at { span.fineprint { "revoked " (time::ago(at, look.now)) } }
        @else if look.viewer.key == Some(row.id) { span.fineprint { "you are signed in with it" } }
        @else { (parts::considered(&look.viewer, &format!("/keys/{}/revoke", row.id), "Revoke…", &says, "Revoke the key")) }
    }
}

pub(super) async fn create(form: Form<Admins>) -> Result<Response, Problem> {
    let (look, fields) = (&form.look, &form.fields);
    let new = NewKey {
        name: fields.text("name").to_owned(),
        tenant: if fields.text("for") == "all" { Patched::Default } else { Patched::Unchanged },
        scope: fields.text("scope").to_owned(),
    };
    match look.service().create_key(look.caller(), &new).await {
        Ok(made) => {
            let flash =
                Flash::done(format!("The key {} is made.", made.about.name)).with_secret("Key", made.key.reveal());
            Ok(look.done("/keys", &flash))
        }
        Err(problem) if problem.status == 422 => {
            page(look, StatusCode::UNPROCESSABLE_ENTITY, fields, Some(&problem)).await
        }
        Err(problem) => Err(problem),
    }
}

pub(super) async fn revoke(Id(id): Id<KeyId>, form: Form<Admins>) -> Result<Response, Problem> {
    let look = &form.look;
    look.service().revoke_key(look.caller(), id, look.viewer.key).await?;
    Ok(look.done("/keys", &Flash::done("The key opens nothing any more.")))
}
