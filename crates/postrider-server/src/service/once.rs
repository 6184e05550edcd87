//! Once-only claims: look, and begin the next generation.

use postrider::event::check_name;

use super::{Caller, Service};
use crate::api::Problem;
use crate::api::once::OnceClaim;

impl Service {
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

fn one_tenant(caller: &Caller) -> Result<&str, Problem> {
    caller.tenant.filter().ok_or_else(|| {
        Problem::new(422, "tenant_ambiguous", "a subject is one tenant's, and every tenant may have one of that name")
            .hint("name one tenant in the header `Postrider-Tenant`")
    })
}
