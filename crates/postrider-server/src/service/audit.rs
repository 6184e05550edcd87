//! The audit trail.

use super::{Caller, Service};
use crate::api::audit::AuditEntry;
use crate::api::keys::PageQuery;
use crate::api::{Listing, Problem, page_request};

impl Service {
    /// What operators did, newest first.
    pub async fn audit(&self, caller: &Caller, query: &PageQuery) -> Result<Listing<AuditEntry>, Problem> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        Ok(Listing::from_page(self.store().audit(caller.tenant.filter(), &page).await?, AuditEntry::from))
    }
}
