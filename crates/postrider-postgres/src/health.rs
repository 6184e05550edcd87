//! Whether the database can be worked with.

use std::sync::atomic::Ordering;

use postrider::store::{Connections, Health};
use postrider::{StoreError, StoreErrorCode};

use crate::error::Result;
use crate::values::Columns as _;
use crate::{PostgresStore, migrate};

impl PostgresStore {
    /// One statement, since it is asked every few seconds. The texts of migrations, which never change, are compared at the
    /// first time only.
    pub(crate) async fn look_at_health(&self) -> Result<Health> {
        if !self.shared.is_schema_known.load(Ordering::Relaxed) {
            self.check_schema().await?;
            self.shared.is_schema_known.store(true, Ordering::Relaxed);
        }
        let query = sqlx::query(include_str!("../sql/health.sql")).bind(self.now());
        let row = self.row("asking for the database's health", query).await?;
        if row.value("is_read_only")? {
            let message = "the database takes no writes: it is a standby, or was set to read only";
            return Err(StoreError::new(StoreErrorCode::Unavailable, message));
        }
        if !migrate::are_known(&row.value::<Vec<i32>>("versions")?) {
            self.shared.is_schema_known.store(false, Ordering::Relaxed);
            self.check_schema().await?;
        }
        let pool = self.pool();
        let idle = u32::try_from(pool.num_idle()).unwrap_or(u32::MAX);
        let connections = Connections { open: pool.size(), idle, most: pool.options().get_max_connections() };
        Ok(Health { at: row.instant("at")?, connections: Some(connections) })
    }
}
