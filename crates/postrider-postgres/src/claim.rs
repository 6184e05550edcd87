//! Claiming: the statement, and the endpoints that go with what it took.
//!
//! One statement takes from all lanes but those whose endpoints have limits of their own, since a limit that holds for all
//! dispatchers together needs a lock. If the statement came by such lanes, a second step takes from them what it left free
//! for them (see [`crate::meters`]). What they may not have goes to the other lanes after all, in a third.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use postrider::store::{Claim, ClaimRequest, Claimed, Lane};
use postrider::{DeliveryId, Endpoint, EndpointId, EventId, Lease, LeaseToken};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{Decode, Row as _, Type};
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::{Result, damaged, store_error};
use crate::floors::{Look, Seen};
use crate::meters::{Metered, MeteredLane};
use crate::plans::{Plans, Sizes};
use crate::values::{Columns as _, int, micros};
use crate::{PostgresStore, endpoints};

/// From how many lanes one claim takes.
const MAX_LANES: u32 = 32;
/// How many lanes it looks at to find them.
const MAX_VISITS: i32 = 512;

/// What was taken, and of which endpoint each is.
#[derive(Default)]
pub(crate) struct Taken {
    claims: Vec<Claim>,
    endpoint_ids: Vec<Option<Uuid>>,
    /// The last position of each lane.
    last: BTreeMap<String, i64>,
}

impl Taken {
    /// Takes the rows that are claims, in the order in which they became due.
    ///
    /// By place and not by name, which would be looked up for each row again: all statements that claim begin with these columns.
    pub(crate) fn extend(&mut self, rows: &[PgRow]) -> Result<()> {
        let mut taken = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(id) = at::<Option<Uuid>>(row, 0)? {
                taken.push((at::<i64>(row, 3)?, id, row));
            }
        }
        taken.sort_unstable_by_key(|(position, ..)| *position);
        for (position, id, row) in taken {
            let lane: &str = at(row, 2)?;
            match self.last.get_mut(lane) {
                Some(last) => *last = position,
                None => drop(self.last.insert(lane.to_owned(), position)),
            }
            let claim = Claim {
                lease: Lease { delivery_id: DeliveryId::from_uuid(id), token: LeaseToken(at(row, 1)?) },
                lane: Lane(lane.to_owned()),
                tenant: at(row, 4)?,
                event_id: EventId::from_uuid(at(row, 5)?),
                event_type: at(row, 6)?,
                payload: Bytes::from(at::<Vec<u8>>(row, 7)?),
                destination_url: at(row, 8)?,
                attempt_count: number_at(row, 9)?,
                earlier_attempts: number_at(row, 10)?,
                abandoned_count: number_at(row, 11)?,
                endpoint: None,
            };
            self.claims.push(claim);
            self.endpoint_ids.push(at(row, 12)?);
        }
        Ok(())
    }

    fn count(&self) -> u32 {
        u32::try_from(self.claims.len()).unwrap_or(u32::MAX)
    }

    /// What the caller has in flight once it has these as well.
    fn in_flight_with(&self, before: &[(Lane, u32)]) -> Vec<(Lane, u32)> {
        let mut counts: HashMap<&Lane, u32> = before.iter().map(|(lane, count)| (lane, *count)).collect();
        for claim in &self.claims {
            *counts.entry(&claim.lane).or_default() += 1;
        }
        counts.into_iter().map(|(lane, count)| (lane.clone(), count)).collect()
    }
}

/// Where one statement went.
struct Pass {
    took: Duration,
    at: Timestamp,
    /// Whether it went all the way round.
    complete: bool,
    first_lane: Option<String>,
    last_lane: String,
    metered: Vec<MeteredLane>,
    /// How many slots it left free for those.
    reserved: u32,
}

/// What a statement does about lanes whose endpoints have limits of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MeteredLanes {
    Reserve,
    PassOver,
}

impl PostgresStore {
    pub(crate) async fn claim_ready(&self, request: &ClaimRequest) -> Result<Claimed> {
        let look = self.shared.floors.look(Instant::now());
        let request = ClaimRequest { limit: request.limit.min(self.shared.freight.most()), ..request.clone() };
        let mut claimed = self.claim_by(&request, &look).await?;
        if claimed.claims.is_empty() && !look.is_full() {
            // Nothing above the floors is not yet nothing at all.
            claimed = self.claim_by(&request, &Look::at_everything()).await?;
        }
        self.shared.freight.learn(claimed.claims.iter().map(|claim| claim.payload.len()));
        self.shared.wake.took(claimed.claims.len());
        Ok(claimed)
    }

    async fn claim_by(&self, request: &ClaimRequest, look: &Look) -> Result<Claimed> {
        let mut taken = Taken::default();
        match self.gather(request, look, &mut taken).await {
            Ok(claimed) => Ok(Claimed { claims: taken.claims, ..claimed }),
            Err(error) => {
                // Nobody will hear of these leases, so they are given back at once rather than left to expire.
                let leases: Vec<Lease> = taken.claims.iter().map(|claim| claim.lease).collect();
                let _ = self.release_leases(&request.worker, &leases).await;
                Err(error)
            }
        }
    }

    /// Takes all that there is, with the endpoints. What it took before an error is in `taken` as well.
    async fn gather(&self, request: &ClaimRequest, look: &Look, taken: &mut Taken) -> Result<Claimed> {
        let pass = self.take(request, request.limit, look, MeteredLanes::Reserve, taken).await?;
        let mut metered = Metered::default();
        if !pass.metered.is_empty() {
            let were_full = taken.count() + pass.reserved >= request.limit;
            metered = self.take_metered(request, &pass.metered, request.limit - taken.count(), taken).await?;
            let left = request.limit - taken.count();
            if left > 0 && were_full {
                let in_flight = taken.in_flight_with(&request.in_flight);
                let request = ClaimRequest { in_flight, ..request.clone() };
                self.take(&request, left, look, MeteredLanes::PassOver, taken).await?;
            }
        }
        let found = self.endpoints_of(&taken.endpoint_ids).await?;
        for (claim, endpoint) in taken.claims.iter_mut().zip(&taken.endpoint_ids) {
            claim.endpoint = endpoint.map(|id| {
                let endpoint = found.get(&id).cloned();
                endpoint.unwrap_or_else(|| Arc::new(endpoints::removed(id, &claim.tenant, &claim.destination_url)))
            });
        }
        // A claim that went all the way round and still had slots left has seen everything, unless it passed by an endpoint
        // that another claim had in its hands. One that filled its slots goes on one lane further next time, so that the
        // odd ones of an uneven division go round as well.
        let filled = taken.count() >= request.limit;
        let seen = Seen { took: pass.took, is_filled: filled, last: &taken.last };
        self.shared.floors.learn(look, Instant::now(), &seen);
        let cursor = match (pass.complete, filled) {
            (true, false) if !metered.passed_by => None,
            (true, true) => pass.first_lane.map(Lane),
            _ => Some(Lane(pass.last_lane)),
        };
        Ok(Claimed { claims: Vec::new(), cursor, at: pass.at, next_token_in: metered.next_token_in })
    }

    async fn take(
        &self,
        request: &ClaimRequest,
        limit: u32,
        look: &Look,
        metered: MeteredLanes,
        taken: &mut Taken,
    ) -> Result<Pass> {
        loop {
            let most = self.shared.plans.most();
            let lent = self.lend("claiming").await?;
            let began = Instant::now();
            let rows = lent.rows(self.taking(request, limit, look, metered, most)).await?;
            let took = began.elapsed();
            let head = rows.last().expect("a claim always has a row that says where it ended");
            let sizes = Sizes { deliveries: head.value("deliveries_bytes")?, events: head.value("events_bytes")? };
            if !self.shared.plans.learn(sizes, most) {
                continue;
            }
            taken.extend(&rows)?;
            let metered = pairs(head, "metered_lanes", "metered_positions")?;
            return Ok(Pass {
                took,
                at: head.instant("at")?,
                complete: head.value("complete")?,
                first_lane: head.value("first_lane")?,
                last_lane: head.value("last_lane")?,
                metered: metered.map(|(lane, position)| MeteredLane { lane, position }).collect(),
                reserved: head.unsigned("reserved")?,
            });
        }
    }

    fn taking(
        &self,
        request: &ClaimRequest,
        limit: u32,
        look: &Look,
        metered: MeteredLanes,
        most: Sizes,
    ) -> Query<'static, Postgres, PgArguments> {
        // More lanes than free slots would leave some of them looked at without their turn.
        let lanes = limit.clamp(1, MAX_LANES);
        // Fewer than none where more than the limit may be had.
        let mut taken_slots: HashMap<&Lane, i32> =
            request.in_flight.iter().map(|(lane, count)| (lane, int(*count))).collect();
        for (lane, ahead) in &request.ahead {
            *taken_slots.entry(lane).or_default() -= int(*ahead);
        }
        sqlx::query(Plans::text(include_str!("../sql/claim.sql"), most))
            .bind(self.now())
            .bind(request.worker.as_str().to_owned())
            .bind(micros(request.lease))
            .bind(int(limit))
            .bind(int(request.lane_limit))
            .bind(taken_slots.keys().map(|lane| lane.0.clone()).collect::<Vec<_>>())
            .bind(taken_slots.values().copied().collect::<Vec<_>>())
            .bind(request.after.as_ref().map(|lane| lane.0.clone()))
            .bind(int(lanes))
            .bind(MAX_VISITS)
            .bind(look.lanes.clone())
            .bind(look.positions.clone())
            .bind(metered == MeteredLanes::Reserve)
            .bind((0..limit).map(|_| Uuid::new_v4()).collect::<Vec<_>>())
            .bind(most.deliveries)
            .bind(most.events)
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

fn at<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, place: usize) -> Result<T> {
    row.try_get(place).map_err(store_error("reading a claim"))
}

fn number_at(row: &PgRow, place: usize) -> Result<u32> {
    u32::try_from(at::<i32>(row, place)?).map_err(|error| damaged("a count", error))
}

/// Lanes with a position each, from two columns of arrays.
fn pairs(row: &PgRow, lanes: &'static str, positions: &'static str) -> Result<impl Iterator<Item = (String, i64)>> {
    let lanes: Option<Vec<String>> = row.value(lanes)?;
    let positions: Option<Vec<i64>> = row.value(positions)?;
    Ok(lanes.unwrap_or_default().into_iter().zip(positions.unwrap_or_default()))
}
