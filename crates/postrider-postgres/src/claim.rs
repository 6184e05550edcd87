//! Claiming: the statement, and the endpoints that go with what it took.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use postrider::store::{Claim, ClaimRequest, Claimed, Lane};
use postrider::{DeliveryId, Endpoint, EndpointId, EventId, Lease, LeaseToken};
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::Result;
use crate::floors::Look;
use crate::lent::Lent;
use crate::values::{Columns as _, int, micros};
use crate::{PostgresStore, endpoints};

/// From how many lanes one claim takes.
const MAX_LANES: u32 = 32;
/// How many lanes it looks at to find them.
const MAX_VISITS: i32 = 512;

impl PostgresStore {
    pub(crate) async fn claim_ready(&self, request: &ClaimRequest) -> Result<Claimed> {
        let look = self.shared.floors.look(Instant::now());
        let claimed = self.claim_once(request, &look).await?;
        if claimed.claims.is_empty() && !look.is_full() {
            // Nothing above the floors is not yet nothing at all.
            return self.claim_once(request, &Look::at_everything()).await;
        }
        Ok(claimed)
    }

    async fn claim_once(&self, request: &ClaimRequest, look: &Look) -> Result<Claimed> {
        // More lanes than free slots would leave some of them looked at without their turn.
        let lanes = request.limit.clamp(1, MAX_LANES);
        let lent = Lent::from(self.pool(), "claiming").await?;
        let began = Instant::now();
        let query = sqlx::query(include_str!("../sql/claim.sql"))
            .bind(self.now())
            .bind(request.worker.as_str())
            .bind(micros(request.lease))
            .bind(int(request.limit))
            .bind(int(request.lane_limit))
            .bind(request.in_flight.iter().map(|(lane, _)| lane.0.as_str()).collect::<Vec<_>>())
            .bind(request.in_flight.iter().map(|(_, count)| int(*count)).collect::<Vec<_>>())
            .bind(request.after.as_ref().map(|lane| lane.0.as_str()))
            .bind(int(lanes))
            .bind(MAX_VISITS)
            .bind(&look.lanes)
            .bind(&look.positions)
            .bind(look.observe);
        let rows = lent.rows(query).await?;
        let head = rows.first().expect("a claim always has a row that says where it ended");
        let at = head.instant("at")?;
        let complete: bool = head.value("complete")?;
        let first_lane: Option<String> = head.value("first_lane")?;
        let last_lane: String = head.value("last_lane")?;
        let seen_lanes: Option<Vec<String>> = head.value("seen_lanes")?;
        let seen_positions: Option<Vec<i64>> = head.value("seen_positions")?;
        let seen = seen_lanes.unwrap_or_default().into_iter().zip(seen_positions.unwrap_or_default());
        self.shared.floors.learn(look, Instant::now(), began.elapsed(), seen);

        let mut claims = Vec::with_capacity(rows.len());
        let mut endpoint_of = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(id) = row.value::<Option<Uuid>>("delivery_id")? else { continue };
            endpoint_of.push(row.value::<Option<Uuid>>("endpoint_id")?);
            claims.push(Claim {
                lease: Lease { delivery_id: DeliveryId::from_uuid(id), token: LeaseToken(row.value("token")?) },
                lane: Lane(row.value("lane")?),
                tenant: row.value("tenant")?,
                event_id: EventId::from_uuid(row.value("event_id")?),
                event_type: row.value("type")?,
                payload: Bytes::from(row.value::<Vec<u8>>("payload")?),
                destination_url: row.value("destination_url")?,
                attempt_count: row.unsigned("attempt_count")?,
                earlier_attempts: row.unsigned("earlier_attempts")?,
                endpoint: None,
            });
        }
        let found = match self.endpoints_of(&endpoint_of).await {
            Ok(found) => found,
            Err(error) => {
                // Nobody will hear of these leases, so they are given back at once rather than left to expire.
                let leases: Vec<Lease> = claims.iter().map(|claim| claim.lease).collect();
                let _ = self.release_leases(&request.worker, &leases).await;
                return Err(error);
            }
        };
        for (claim, endpoint) in claims.iter_mut().zip(&endpoint_of) {
            claim.endpoint = endpoint.map(|id| {
                let endpoint = found.get(&id).cloned();
                endpoint.unwrap_or_else(|| Arc::new(endpoints::removed(id, &claim.tenant, &claim.destination_url)))
            });
        }
        // A claim that went all the way round and still had slots left has seen everything. One that filled its slots
        // goes on one lane further next time, so that the odd ones of an uneven division go round as well.
        let filled = claims.len() >= request.limit as usize;
        let cursor = match (complete, filled) {
            (true, false) => None,
            (true, true) => first_lane.map(Lane),
            (false, _) => Some(Lane(last_lane)),
        };
        Ok(Claimed { claims, cursor, at, next_token_in: None })
    }

    async fn endpoints_of(&self, ids: &[Option<Uuid>]) -> Result<HashMap<Uuid, Arc<Endpoint>>> {
        let mut wanted: Vec<Uuid> = ids.iter().copied().flatten().collect();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.read_endpoints(&wanted).await?;
        Ok(found.into_iter().map(|endpoint| (EndpointId::as_uuid(&endpoint.id), Arc::new(endpoint))).collect())
    }
}
