//! Who is asking. A handler that takes a [`Reader`], a [`Writer`] or an [`Admin`] is only called for a key of that scope.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use postrider::event::check_name;
use postrider::store::Operator;
use postrider::{ApiKey, DEFAULT_TENANT, KeyToken, Scope};

use super::AppState;
use super::edge::Notes;
use crate::api::Problem;
use crate::service::{Caller, Tenancy};

/// In which a key for all tenants says which one it means.
pub(super) const TENANT: &str = "postrider-tenant";

/// Somebody who may look.
pub(super) struct Reader(pub(super) Caller);

/// Somebody who may send events and act on what there is.
pub(super) struct Writer(pub(super) Caller);

/// Somebody who may manage keys and read the audit trail.
pub(super) struct Admin(pub(super) Caller);

impl FromRequestParts<AppState> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        caller(parts, state, Scope::Read).await.map(Self)
    }
}

impl FromRequestParts<AppState> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        caller(parts, state, Scope::Write).await.map(Self)
    }
}

impl FromRequestParts<AppState> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        caller(parts, state, Scope::Admin).await.map(Self)
    }
}

async fn caller(parts: &Parts, state: &AppState, needed: Scope) -> Result<Caller, Problem> {
    let named = named_tenant(&parts.headers)?;
    let caller = if state.config().dev {
        let tenant = named.unwrap_or(Tenancy::One(DEFAULT_TENANT.to_owned()));
        Caller { tenant, operator: Operator("dev".to_owned()), any_tenant: true }
    } else {
        let key = recognised(&parts.headers, state).await?;
        if let Some(notes) = parts.extensions.get::<Notes>() {
            notes.key(key.id);
        }
        if key.scope < needed {
            let detail = format!("this needs a key of scope {needed}, the key's scope is {}", key.scope);
            return Err(Problem::new(403, "scope_insufficient", detail));
        }
        caller_with(key, named)?
    };
    if let Some(notes) = parts.extensions.get::<Notes>() {
        notes.tenant(caller.tenant.filter().unwrap_or("*"));
    }
    Ok(caller)
}

pub(super) async fn recognised(headers: &HeaderMap, state: &AppState) -> Result<ApiKey, Problem> {
    const HINT: &str = "send `Authorization: Bearer prk_…`";
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (shown.next(), shown.next()) else {
        return Err(Problem::new(401, "key_missing", "one API key is needed").hint(HINT));
    };
    let token = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .and_then(|(_, token)| KeyToken::parse(token.trim()));
    let key = match token {
        Some(token) => state.service().recognise(&token).await?,
        None => None,
    };
    key.ok_or_else(|| Problem::new(401, "key_invalid", "the API key is unknown or revoked").hint(HINT))
}

fn named_tenant(headers: &HeaderMap) -> Result<Option<Tenancy>, Problem> {
    let mut values = headers.get_all(TENANT).iter();
    let tenancy = match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => return Ok(None),
        (Some(Ok("*")), None) => Tenancy::All,
        (Some(Ok(name)), None) => {
            check_name("Postrider-Tenant", "tenant_invalid", name)?;
            Tenancy::One(name.to_owned())
        }
        _ => {
            let detail = "Postrider-Tenant is given once, as printable ASCII";
            return Err(Problem::new(422, "tenant_invalid", detail).about("Postrider-Tenant"));
        }
    };
    Ok(Some(tenancy))
}

pub(crate) fn caller_with(key: ApiKey, named: Option<Tenancy>) -> Result<Caller, Problem> {
    let any_tenant = key.tenant.is_none();
    let tenant = match (key.tenant, named) {
        (None, named) => named.unwrap_or(Tenancy::One(DEFAULT_TENANT.to_owned())),
        (Some(own), None) => Tenancy::One(own),
        (Some(own), Some(named)) if named == Tenancy::One(own.clone()) => named,
        // Acting on the key's own tenant instead would not be what was asked for.
        (Some(_), Some(_)) => {
            return Err(Problem::new(403, "tenant_forbidden", "the key is for another tenant")
                .hint("leave out the header Postrider-Tenant, or use a key for all tenants"));
        }
    };
    Ok(Caller { tenant, operator: Operator(format!("{} ({})", key.name, key.id)), any_tenant })
}
