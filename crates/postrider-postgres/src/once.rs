//! Once-only claims: how a subject stands, and the next generation. Claiming is part of enqueueing.

use postrider::store::Operator;
use postrider::{EventId, OnceClaim, OnceCursor, OnceFilter, OncePage, OnceWinner, PageRequest, StoreError};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::{Result, damaged, store_error};
use crate::values::{Columns as _, generation, int, text};

impl PostgresStore {
    pub(crate) async fn read_once(&self, tenant: &str, subject: &str) -> Result<Option<OnceClaim>> {
        let query = sqlx::query(include_str!("../sql/once.sql")).bind([text(tenant)]).bind([text(subject)]);
        let row = self.maybe_row("reading a once-only claim", query).await?;
        row.as_ref().map(claim).transpose()
    }

    pub(crate) async fn list_once(
        &self,
        filter: &OnceFilter,
        after: Option<&OnceCursor>,
        page: &PageRequest,
    ) -> Result<OncePage> {
        let failed = || store_error("listing once-only claims");
        let named = |statement: &'static str| {
            sqlx::query(statement)
                .bind(filter.tenant.as_deref().map(text))
                .bind(filter.prefix.as_deref().map(text))
                .bind(after.map(|cursor| text(&cursor.tenant)))
                .bind(after.map(|cursor| text(&cursor.subject)))
        };
        let mut transaction = self.reading().await?;
        let mut floor = None;
        if filter.prefix.is_some() {
            let found = named(include_str!("../sql/once_claims_floor.sql")).bind(int(page.most_looked_at()) - 1);
            if let Some(row) = found.fetch_optional(&mut *transaction).await.map_err(failed())? {
                floor = Some(OnceCursor { tenant: row.value("tenant")?, subject: row.value("subject")? });
            }
        }
        let rows = named(include_str!("../sql/once_claims.sql"))
            .bind(floor.as_ref().map(|floor| floor.tenant.as_str()))
            .bind(floor.as_ref().map(|floor| floor.subject.as_str()))
            .bind(int(page.limit() + 1))
            .fetch_all(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        let mut items = rows.iter().map(claim).collect::<Result<Vec<_>>>()?;
        let more = items.len() > page.limit() as usize;
        items.truncate(page.limit() as usize);
        let last = items.last().filter(|_| more);
        let last = last.map(|last| OnceCursor { tenant: last.tenant.clone(), subject: last.subject.clone() });
        let next = last.or(floor);
        Ok(OncePage { items, next })
    }

    pub(crate) async fn begin_next_generation(&self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64> {
        let mut transaction = self.lend("resetting a once-only claim").await?.begin("begin").await?;
        let generation = self.reset_once_in(&mut transaction, tenant, subject, operator).await?;
        transaction.commit().await?;
        Ok(generation)
    }

    /// Begins the next generation of a subject in the caller's transaction, and returns it. Whoever claims the subject
    /// meanwhile waits for that transaction to end. Audited.
    pub async fn reset_once_in(
        &self,
        connection: &mut PgConnection,
        tenant: &str,
        subject: &str,
        operator: &Operator,
    ) -> Result<u64, StoreError> {
        let failed = || store_error("resetting a once-only claim");
        let (tenant, subject) = (text(tenant), text(subject));
        sqlx::query(include_str!("../sql/once_reset_hold.sql"))
            .bind(&tenant)
            .bind(&subject)
            .execute(&mut *connection)
            .await
            .map_err(failed())?;
        let row = sqlx::query(include_str!("../sql/once_reset.sql"))
            .bind(self.now())
            .bind(&tenant)
            .bind(&subject)
            .bind(text(&operator.0))
            .fetch_optional(connection)
            .await
            .map_err(failed())?;
        let row = row.ok_or_else(|| damaged("a once-only claim", "it vanished while it was held"))?;
        generation(row.value("generation")?)
    }
}

fn claim(row: &PgRow) -> Result<OnceClaim> {
    let winner = match row.value::<Option<Uuid>>("event_id")? {
        Some(id) => Some(OnceWinner {
            event_id: EventId::from_uuid(id),
            event_type: row.value("event_type")?,
            claimed_at: row.instant("claimed_at")?,
        }),
        None => None,
    };
    Ok(OnceClaim {
        tenant: row.value("tenant")?,
        subject: row.value("subject")?,
        generation: generation(row.value("generation")?)?,
        winner,
    })
}
