//! API keys, of which only digests are kept.

use postrider::store::Operator;
use postrider::{ApiKey, KeyDigest, KeyId, NewApiKey, Page, PageRequest};
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::error::{Result, damaged};
use crate::operate::page_of;
use crate::values::{Columns as _, int, text};

fn key(row: &PgRow) -> Result<ApiKey> {
    Ok(ApiKey {
        id: KeyId::from_uuid(row.value("id")?),
        name: row.value("name")?,
        tenant: row.value("tenant")?,
        scope: row.value::<&str>("scope")?.parse().map_err(|error| damaged("a key's scope", error))?,
        created_at: row.instant("created_at")?,
        revoked_at: row.maybe_instant("revoked_at")?,
    })
}

impl PostgresStore {
    pub(crate) async fn insert_key(&self, new: &NewApiKey, operator: &Operator) -> Result<Option<ApiKey>> {
        let query = sqlx::query(include_str!("../sql/create_key.sql"))
            .bind(self.now())
            .bind(text(&new.name))
            .bind(new.tenant.as_deref().map(text))
            .bind(new.scope.as_str())
            .bind(&new.digest[..])
            .bind(text(&operator.0))
            .bind(new.only_first);
        let row = self.maybe_row("making a key", query).await?;
        row.as_ref().map(key).transpose()
    }

    pub(crate) async fn keys_page(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<ApiKey>> {
        let query = sqlx::query(include_str!("../sql/keys.sql"))
            .bind(tenant.map(text))
            .bind(page.cursor().map(|cursor| cursor.0))
            .bind(int(page.limit() + 1));
        let rows = self.rows("listing keys", query).await?;
        let items = rows.iter().map(key).collect::<Result<Vec<_>>>()?;
        Ok(page_of(items, page, |key| key.id.as_uuid()))
    }

    pub(crate) async fn read_key(&self, digest: &KeyDigest) -> Result<Option<ApiKey>> {
        let query = sqlx::query(include_str!("../sql/key_of_digest.sql")).bind(&digest[..]);
        let row = self.maybe_row("looking up a key", query).await?;
        row.as_ref().map(key).transpose()
    }

    pub(crate) async fn mark_key_revoked(&self, id: KeyId, tenant: Option<&str>, operator: &Operator) -> Result<bool> {
        let query = sqlx::query(include_str!("../sql/revoke_key.sql"))
            .bind(self.now())
            .bind(id.as_uuid())
            .bind(tenant.map(text))
            .bind(text(&operator.0));
        let row = self.row("revoking a key", query).await?;
        row.value("found")
    }
}
