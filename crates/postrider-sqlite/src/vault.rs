//! Endpoints as they are read from the database, which keeps their secrets sealed.
//!
//! A claim needs the endpoint of every lane that it looks at, many times a second, and to parse and to decrypt the same
//! settings each time would cost more than the rest of the claim. So what was read last is kept, and used again while
//! the row has exactly the same columns; a change by anybody, in this process or in another, is seen by the next claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use postrider::{Endpoint, EndpointId, EndpointSettings, Keyring, KeyringError, StoreError, StoreErrorCode};
use rusqlite::Row;
use uuid::Uuid;

use crate::clock::Micros;
use crate::rows;

/// At most so many endpoints are kept; beyond that it begins anew.
const MAX_KNOWN: usize = 4096;

/// The keys to the secrets, and what was read with them.
#[derive(Debug, Default)]
pub(crate) struct Vault {
    keyring: Keyring,
    known: Mutex<HashMap<Uuid, Known>>,
}

/// An endpoint with the texts that it was read from.
#[derive(Debug)]
struct Known {
    event_types: String,
    settings: String,
    failing_since: Option<Micros>,
    endpoint: Arc<Endpoint>,
}

impl Vault {
    pub(crate) fn new(keyring: Keyring) -> Self {
        Self { keyring, known: Mutex::default() }
    }

    pub(crate) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The text of the settings that is kept in the database.
    pub(crate) fn seal(&self, settings: &EndpointSettings, tenant: &str) -> Result<String, StoreError> {
        settings.to_stored(&self.keyring, tenant).map_err(|error| {
            let what_to_do = match error {
                KeyringError::NoKey => "; set one, such as `openssl rand -base64 32` prints, and keep it safe",
                KeyringError::UnknownKey(_) | KeyringError::Damaged => "",
            };
            StoreError::new(StoreErrorCode::SecretKey, format!("{error}{what_to_do}"))
        })
    }

    /// The endpoint in a row. What cannot be read of it is its trouble, and no error: others must not suffer from it.
    pub(crate) fn endpoint(&self, row: &Row<'_>) -> rusqlite::Result<Endpoint> {
        let tenant: String = row.get("tenant")?;
        let text: String = row.get("settings")?;
        let (settings, mut trouble) = match EndpointSettings::from_stored(&text, &self.keyring, &tenant) {
            Ok(settings) => (settings, None),
            Err(error) => (EndpointSettings::default(), Some(error.to_string())),
        };
        let text: String = row.get("event_types")?;
        let event_types = serde_json::from_str(&text).unwrap_or_else(|_| {
            trouble.get_or_insert("event_types_damaged: the event types are not what this program writes".to_owned());
            Vec::new()
        });
        Ok(Endpoint {
            id: EndpointId::from_uuid(row.get("id")?),
            tenant,
            url: row.get("url")?,
            event_types,
            status: rows::parsed(row, "status")?,
            status_reason: row.get("status_reason")?,
            settings,
            trouble,
            revision: rows::count(row, "revision")?,
            failing_since: rows::maybe_instant(row, "failing_since")?,
            created_at: rows::instant(row, "created_at")?,
        })
    }

    /// The same, for a claim: what was read before is not read again.
    pub(crate) fn known(&self, row: &Row<'_>) -> rusqlite::Result<Arc<Endpoint>> {
        let id: Uuid = row.get("id")?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&id)
            && known.is_read_from(row)?
        {
            return Ok(Arc::clone(&known.endpoint));
        }
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let endpoint = Arc::new(self.endpoint(row)?);
        let read = Known {
            event_types: row.get("event_types")?,
            settings: row.get("settings")?,
            failing_since: row.get("failing_since")?,
            endpoint: Arc::clone(&endpoint),
        };
        known.insert(id, read);
        Ok(endpoint)
    }
}

impl Known {
    fn is_read_from(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let is = |column: &str, text: &str| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()? == text);
        let reason = row.get_ref("status_reason")?.as_str_or_null()?;
        Ok(rows::count(row, "revision")? == self.endpoint.revision
            && row.get::<_, Option<Micros>>("failing_since")? == self.failing_since
            && reason == self.endpoint.status_reason.as_deref()
            && is("status", self.endpoint.status.as_str())?
            && is("url", &self.endpoint.url)?
            && is("event_types", &self.event_types)?
            && is("settings", &self.settings)?)
    }
}
