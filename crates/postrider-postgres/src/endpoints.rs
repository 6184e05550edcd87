//! Endpoints: registered receivers.

use postrider::store::Operator;
use postrider::{Endpoint, EndpointId, EndpointSettings, EndpointStatus, EventTypePattern, NewEndpoint};
use sqlx::PgPool;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::error::{Result, damaged, store_error};
use crate::values::{Columns as _, int, text};
use crate::{PostgresStore, lent};

/// The endpoints with these ids.
pub(crate) async fn read(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Endpoint>> {
    let query = sqlx::query(include_str!("../sql/endpoints.sql")).bind(ids);
    let rows = lent::rows(pool, "reading endpoints", query).await?;
    rows.iter().map(endpoint).collect()
}

fn endpoint(row: &PgRow) -> Result<Endpoint> {
    let patterns: Vec<String> = row.value("event_types")?;
    let event_types = patterns.into_iter().map(EventTypePattern::try_from).collect::<Result<_, _>>();
    Ok(Endpoint {
        id: EndpointId::from_uuid(row.value("id")?),
        tenant: row.value("tenant")?,
        url: row.value("url")?,
        event_types: event_types.map_err(|error| damaged("an endpoint's event types", error))?,
        status: row.value::<&str>("status")?.parse().map_err(|error| damaged("an endpoint's status", error))?,
        status_reason: row.value("status_reason")?,
        // The reason is not passed on: it could quote a secret.
        settings: EndpointSettings::from_stored(
            row.value("settings")?,
            &crate::keyring_for_now(),
            &row.value::<String>("tenant")?,
        )
        .map_err(|_| damaged("an endpoint's settings", "they are not what this version writes"))?,
        trouble: None,
        revision: 0,
        failing_since: None,
        created_at: row.instant("created_at")?,
    })
}

impl PostgresStore {
    pub(crate) async fn insert_endpoint(&self, new: NewEndpoint) -> Result<Endpoint> {
        let row = sqlx::query(include_str!("../sql/create_endpoint.sql"))
            .bind(self.now())
            .bind(text(&new.tenant))
            .bind(new.url.as_str())
            .bind(new.event_types.iter().map(EventTypePattern::as_str).collect::<Vec<_>>())
            .bind(new.settings.to_stored(&crate::keyring_for_now(), &new.tenant).expect("there is a key"))
            .bind(new.settings.max_in_flight.map(|max| int(max.get())))
            .fetch_one(self.pool())
            .await
            .map_err(store_error("registering an endpoint"))?;
        endpoint(&row)
    }

    pub(crate) async fn read_endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(read(self.pool(), &[id.as_uuid()]).await?.pop())
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
        let row = sqlx::query(include_str!("../sql/set_endpoint_status.sql"))
            .bind(self.now())
            .bind(id.as_uuid())
            .bind(status.as_str())
            .bind(reason.map(text))
            .bind(text(&operator.0))
            .bind(action)
            .fetch_one(self.pool())
            .await
            .map_err(store_error("changing an endpoint's status"))?;
        row.value("found")
    }
}
