//! Once-only claims: look, list, and begin the next generation.

use postrider::event::check_name;
use postrider::{OnceCursor, OnceFilter};

use super::{Caller, Service};
use crate::api::once::{OnceClaim, OnceQuery};
use crate::api::{Listing, Problem, page_request};

/// No subject is longer.
const MOST_PREFIX_BYTES: usize = 255;

impl Service {
    /// How subjects stand, by name.
    pub async fn once_claims(&self, caller: &Caller, query: &OnceQuery) -> Result<Listing<OnceClaim>, Problem> {
        let page = page_request(query.limit, None)?;
        let after: Option<OnceCursor> = query.cursor.as_deref().map(str::parse).transpose()?;
        if let Some(prefix) = &query.prefix {
            check_prefix(prefix)?;
        }
        let filter = OnceFilter { tenant: caller.tenant.filter().map(str::to_owned), prefix: query.prefix.clone() };
        let found = self.store().once_claims(&filter, after.as_ref(), &page).await?;
        Ok(Listing {
            data: found.items.into_iter().map(OnceClaim::from).collect(),
            next_cursor: found.next.map(|cursor| cursor.to_string()),
        })
    }

    /// How a subject stands.
    pub async fn once(&self, caller: &Caller, subject: &str) -> Result<OnceClaim, Problem> {
        let tenant = one_tenant(caller)?;
        check_subject(subject)?;
        let claim = self.store().once(tenant, subject).await?;
        claim.map(OnceClaim::from).ok_or_else(|| Problem::not_found("subject", format_args!("`{subject}`")))
    }

    /// Begins the next generation of a subject, in which there is again one winner.
    pub async fn reset_once(&self, caller: &Caller, subject: &str) -> Result<OnceClaim, Problem> {
        let tenant = caller.tenant_for_write()?;
        check_subject(subject)?;
        let generation = self.store().reset_once(tenant, subject, &caller.operator).await?;
        Ok(OnceClaim { tenant: tenant.to_owned(), subject: subject.to_owned(), generation, winner: None })
    }
}

fn check_subject(subject: &str) -> Result<(), Problem> {
    Ok(check_name("subject", "subject_invalid", subject)?)
}

/// The beginning of a subject, which may end anywhere, also with a blank.
fn check_prefix(prefix: &str) -> Result<(), Problem> {
    let printable = prefix.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if (1..=MOST_PREFIX_BYTES).contains(&prefix.len()) && printable {
        return Ok(());
    }
    let detail = format!("prefix has 1 to {MOST_PREFIX_BYTES} printable ASCII characters, as subjects have");
    Err(Problem::new(422, "prefix_invalid", detail).about("prefix"))
}

fn one_tenant(caller: &Caller) -> Result<&str, Problem> {
    caller.tenant.filter().ok_or_else(|| {
        Problem::new(422, "tenant_ambiguous", "a subject is one tenant's, and every tenant may have one of that name")
            .hint("name one tenant in the header `Postrider-Tenant`")
    })
}
