//! Endpoints: registered receivers.
//!
//! What is kept of an endpoint's settings is one text in which secrets are sealed. If it cannot be read, the endpoint says
//! so instead of failing whatever it is part of: a claim takes deliveries of many endpoints.

use postrider::store::{EndpointChange, Operator};
use postrider::{
    Endpoint, EndpointFilter, EndpointId, EndpointSettings, EndpointStatus, EventTypePattern, Keyring, KeyringError,
    NewEndpoint, Page, PageRequest, RateLimit, StoreError, StoreErrorCode,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresStore;
use crate::browse::READ_ANYTHING;
use crate::error::{Result, damaged, store_error};
use crate::operate::page_of;
use crate::values::{Columns as _, count, generation, int, signed, text};

/// How many of an endpoint's deliveries its removal cancels at once; the rest is left to retention.
const CANCELLED_AT_REMOVAL: u32 = 1000;

impl PostgresStore {
    /// The endpoints with these ids that are not removed.
    pub(crate) async fn read_endpoints(&self, ids: &[Uuid]) -> Result<Vec<Endpoint>> {
        let query = sqlx::query(include_str!("../sql/claim_endpoints.sql")).bind(ids);
        let rows = self.rows("reading endpoints", query).await?;
        rows.iter().map(|row| endpoint(row, &self.keyring)).collect()
    }

    pub(crate) async fn insert_endpoint(&self, new: NewEndpoint, operator: &Operator) -> Result<Endpoint> {
        let stored = self.sealed(&new.settings, &new.tenant)?;
        let rate = new.settings.rate_limit;
        let query = sqlx::query(include_str!("../sql/create_endpoint.sql"))
            .bind(self.now())
            .bind(text(&new.tenant))
            .bind(new.url.as_str())
            .bind(new.event_types.iter().map(EventTypePattern::as_str).collect::<Vec<_>>())
            .bind(stored)
            .bind(new.settings.max_in_flight.map(|max| int(max.get())))
            .bind(rate.map(RateLimit::per_second))
            .bind(rate.map(RateLimit::burst))
            .bind(text(&operator.0));
        let row = self.row("registering an endpoint", query).await?;
        endpoint(&row, &self.keyring)
    }

    pub(crate) async fn read_endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(self.read_endpoints(&[id.as_uuid()]).await?.pop())
    }

    pub(crate) async fn endpoints_page(&self, filter: &EndpointFilter, page: &PageRequest) -> Result<Page<Endpoint>> {
        let failed = || store_error("listing endpoints");
        let mut transaction = self.reading().await?;
        let rows = sqlx::query(include_str!("../sql/endpoints.sql"))
            .bind(filter.tenant.as_deref().map(text))
            .bind(filter.status.map(EndpointStatus::as_str))
            .bind(page.cursor().map(|cursor| cursor.0))
            .bind(int(page.limit() + 1))
            .fetch_all(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        let items = rows.iter().map(|row| endpoint(row, &self.keyring)).collect::<Result<Vec<_>>>()?;
        Ok(page_of(items, page, |endpoint| endpoint.id.as_uuid()))
    }

    pub(crate) async fn write_endpoint(
        &self,
        new: &Endpoint,
        change: EndpointChange,
        operator: &Operator,
    ) -> Result<Option<Endpoint>> {
        if let (Some(trouble), EndpointChange::Reseal) = (&new.trouble, change) {
            // What could not be opened would be sealed as nothing.
            let message = format!("the secrets of {} cannot be encrypted anew: {trouble}", new.id);
            return Err(StoreError::new(StoreErrorCode::SecretKey, message));
        }
        let stored = self.sealed(&new.settings, &new.tenant)?;
        let rate = new.settings.rate_limit;
        let query = sqlx::query(include_str!("../sql/replace_endpoint.sql"))
            .bind(self.now())
            .bind(new.id.as_uuid())
            .bind(signed(new.revision))
            .bind(text(&new.url))
            .bind(new.event_types.iter().map(EventTypePattern::as_str).collect::<Vec<_>>())
            .bind(stored)
            .bind(new.settings.max_in_flight.map(|max| int(max.get())))
            .bind(rate.map(RateLimit::per_second))
            .bind(rate.map(RateLimit::burst))
            .bind(text(&operator.0))
            .bind(change.action());
        let row = self.maybe_row("changing an endpoint", query).await?;
        row.map(|row| endpoint(&row, &self.keyring)).transpose()
    }

    pub(crate) async fn mark_endpoint_removed(&self, id: EndpointId, operator: &Operator) -> Result<bool> {
        let query = sqlx::query(include_str!("../sql/remove_endpoint.sql"))
            .bind(self.now())
            .bind(id.as_uuid())
            .bind(text(&operator.0));
        let row = self.row("removing an endpoint", query).await?;
        let found = row.value("found")?;
        if found {
            // It is removed already. That some of its deliveries are not cancelled yet is no reason to say otherwise.
            if let Err(error) = self.cancel_removed(Some(id), CANCELLED_AT_REMOVAL).await {
                tracing::warn!(code = %error.code, "deliveries of a removed endpoint wait to be cancelled: {error}");
            }
        }
        Ok(found)
    }

    /// Cancels up to `limit` deliveries that wait for a removed endpoint: this one, or any.
    pub(crate) async fn cancel_removed(&self, id: Option<EndpointId>, limit: u32) -> Result<u64> {
        let doing = "cancelling deliveries of a removed endpoint";
        let mut transaction = self.lend(doing).await?.begin(READ_ANYTHING).await?;
        let row = sqlx::query(include_str!("../sql/cancel_removed.sql"))
            .bind(self.now())
            .bind(id.map(|id| id.as_uuid()))
            .bind(int(limit))
            .fetch_one(&mut *transaction)
            .await
            .map_err(store_error(doing))?;
        transaction.commit().await?;
        count(row.value("cancelled")?)
    }

    pub(crate) async fn write_endpoint_status(
        &self,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
        operator: &Operator,
    ) -> Result<bool> {
        let action = match status {
            EndpointStatus::Active => "endpoint.resume",
            EndpointStatus::Paused => "endpoint.pause",
            EndpointStatus::Disabled => "endpoint.disable",
        };
        let query = sqlx::query(include_str!("../sql/set_endpoint_status.sql"))
            .bind(self.now())
            .bind(id.as_uuid())
            .bind(status.as_str())
            .bind(reason.map(text))
            .bind(text(&operator.0))
            .bind(action);
        let row = self.row("changing an endpoint's status", query).await?;
        row.value("found")
    }

    /// The text that is kept of an endpoint's settings.
    fn sealed(&self, settings: &EndpointSettings, tenant: &str) -> Result<String> {
        settings.to_stored(&self.keyring, tenant).map_err(|error| match error {
            KeyringError::NoKey => StoreError::new(
                StoreErrorCode::SecretKey,
                "an endpoint's secrets are kept encrypted, and no secret_key is set; set one of 32 bytes in base64, such as \
                 `openssl rand -base64 32` prints, the same for every process on this database",
            ),
            error => StoreError::new(StoreErrorCode::SecretKey, error.to_string()),
        })
    }
}

/// What stands in for the endpoint of a delivery that is not there any more: nothing may be sent to it.
pub(crate) fn removed(id: Uuid, tenant: &str, url: &str) -> Endpoint {
    Endpoint {
        id: EndpointId::from_uuid(id),
        tenant: tenant.to_owned(),
        url: url.to_owned(),
        event_types: Vec::new(),
        status: EndpointStatus::Disabled,
        status_reason: None,
        settings: EndpointSettings::default(),
        trouble: Some("endpoint_removed: the endpoint was removed".to_owned()),
        revision: 0,
        failing_since: None,
        created_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn endpoint(row: &PgRow, keyring: &Keyring) -> Result<Endpoint> {
    let tenant: String = row.value("tenant")?;
    let patterns: Vec<String> = row.value("event_types")?;
    // The reason does not repeat what could not be read.
    let (settings, trouble) = match EndpointSettings::from_stored(row.value("settings")?, keyring, &tenant) {
        Ok(settings) => (settings, None),
        Err(error) => (EndpointSettings::default(), Some(error.to_string())),
    };
    Ok(Endpoint {
        id: EndpointId::from_uuid(row.value("id")?),
        tenant,
        url: row.value("url")?,
        // A pattern that is not understood was written by a newer program, and matters to enqueues only.
        event_types: patterns.into_iter().filter_map(|pattern| pattern.parse().ok()).collect(),
        status: row.value::<&str>("status")?.parse().map_err(|error| damaged("an endpoint's status", error))?,
        status_reason: row.value("status_reason")?,
        settings,
        trouble,
        revision: generation(row.value("revision")?)?,
        failing_since: row.maybe_instant("failing_since")?,
        created_at: row.instant("created_at")?,
    })
}
