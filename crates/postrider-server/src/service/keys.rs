//! API keys: make, look, revoke.

use postrider::event::check_name;
use postrider::{KeyId, KeyToken, NewApiKey};

use super::{Caller, Service, Tenancy};
use crate::api::endpoints::{Confidential, Patched};
use crate::api::keys::{CreatedKey, Key, NewKey, PageQuery};
use crate::api::{Listing, Problem, page_request};

impl Service {
    /// Makes a key. The answer is the only one that has it.
    pub async fn create_key(&self, caller: &Caller, new: &NewKey) -> Result<CreatedKey, Problem> {
        check_name("name", "name_invalid", &new.name)?;
        let tenant = match &new.tenant {
            Patched::Unchanged => Some(caller.tenant_for_write()?.to_owned()),
            Patched::Default => None,
            Patched::To(tenant) => Some(checked_tenant(tenant)?),
        };
        // An administrator of one tenant must not become one of all.
        if !caller.any_tenant && tenant.as_deref() != caller.tenant.filter() {
            let detail = "a key for one tenant makes keys for that tenant only";
            return Err(Problem::new(403, "tenant_forbidden", detail).about("tenant"));
        }
        let token = KeyToken::generate();
        let key = NewApiKey {
            name: new.name.clone(),
            tenant,
            scope: new.scope.parse()?,
            digest: token.digest(),
            only_first: false,
        };
        let made = self.store().create_key(key, &caller.operator).await?;
        self.forget_keys();
        let made = made.ok_or_else(|| Problem::new(409, "key_exists", "there is such a key already"))?;
        Ok(CreatedKey { about: made.into(), key: Confidential(token.reveal().to_owned()) })
    }

    /// Keys, also revoked ones, newest first.
    pub async fn keys(&self, caller: &Caller, query: &PageQuery) -> Result<Listing<Key>, Problem> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        Ok(Listing::from_page(self.store().keys(caller.tenant.filter(), &page).await?, Key::from))
    }

    /// Revokes a key: from now on it opens nothing. `own` is the key that asks, which would lock itself out.
    pub async fn revoke_key(&self, caller: &Caller, id: KeyId, own: Option<KeyId>) -> Result<(), Problem> {
        if own == Some(id) {
            return Err(Problem::new(409, "key_in_use", "a key cannot revoke itself").hint("use another admin key"));
        }
        let tenancy = if caller.any_tenant { &Tenancy::All } else { &caller.tenant };
        let revoked = self.store().revoke_key(id, tenancy.filter(), &caller.operator).await?;
        self.forget_keys();
        if revoked { Ok(()) } else { Err(Problem::not_found("key", id)) }
    }
}

fn checked_tenant(tenant: &str) -> Result<String, Problem> {
    check_name("tenant", "tenant_invalid", tenant)?;
    if tenant == "*" {
        let detail = "`*` means all tenants, and is no tenant's name";
        return Err(Problem::new(422, "tenant_invalid", detail).about("tenant").hint("use null for all tenants"));
    }
    Ok(tenant.to_owned())
}
