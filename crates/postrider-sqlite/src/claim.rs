//! Claiming: a fair share of every lane.
//!
//! A skip-scan steps from lane to lane through the primary key of `postrider_ready`, one seek per lane, so its cost
//! depends on the number of lanes looked at and not on what waits in them: a lane with a million rows costs as much as
//! a lane with one, and a lane at its limit is passed over without reading any of its rows. The free slots are divided
//! equally between the lanes that were found; what some lanes cannot use goes to the others, so that a lane that is
//! alone gets everything.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use postrider::store::{Claim, ClaimRequest, Claimed, Lane};
use postrider::{DeliveryId, Endpoint, EndpointId, EndpointStatus, EventId, Lease, LeaseToken};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::rows;
use crate::sql::sql;
use crate::writer::Session;

/// At most so many lanes share a claim, so that each gets a few.
const MAX_LANES: usize = 32;
/// At most so many lanes are looked at, also when they are at their limits or held back.
const MAX_LANES_VISITED: usize = 512;

pub(crate) fn claim(session: &mut Session, request: &ClaimRequest) -> rusqlite::Result<Claimed> {
    // Before looking, so that whatever becomes ready from here on wakes the next wait. A claim that goes on in the middle
    // does not look at the lanes before it, so it says nothing of what has happened there.
    if request.after.is_none() {
        session.wake.ready.attend();
    }
    let at = rows::timestamp(session.now)?;
    let (mut lanes, cursor) = open_lanes(session, request)?;
    let mut claims = Vec::new();
    if !lanes.is_empty() {
        session.claimers.insert(request.worker.as_str().to_owned());
    }
    let mut left = request.limit;
    while left > 0 && !lanes.is_empty() {
        let share = (left / u32::try_from(lanes.len()).unwrap_or(u32::MAX)).max(1);
        let mut open = Vec::with_capacity(lanes.len());
        for mut lane in lanes {
            let wanted = share.min(lane.free).min(left);
            let taken = take(session, request, &lane, wanted, &mut claims)?;
            left -= taken;
            lane.free -= taken;
            // A lane that gave less than it was asked for has no more.
            if wanted > 0 && taken == wanted && lane.free > 0 {
                open.push(lane);
            }
        }
        lanes = open;
    }
    Ok(Claimed { claims, cursor, at, next_token_in: None })
}

struct OpenLane {
    lane: Lane,
    free: u32,
    endpoint: Option<Arc<Endpoint>>,
}

/// The lanes that may give something, and the last lane that was looked at, unless there is none after it.
fn open_lanes(session: &Session, request: &ClaimRequest) -> rusqlite::Result<(Vec<OpenLane>, Option<Lane>)> {
    let in_flight: HashMap<&Lane, u32> = request.in_flight.iter().map(|(lane, count)| (lane, *count)).collect();
    // More lanes than slots would leave some without a turn, although the cursor has passed them.
    let most = MAX_LANES.min(request.limit as usize);
    let mut next_lane = session.connection.prepare_cached(sql!("claim_next_lane"))?;
    let mut lanes = Vec::new();
    let mut visited = 0;
    let mut cursor = request.after.clone();
    loop {
        let after = cursor.as_ref().map_or("", |lane| lane.0.as_str());
        let Some(lane) = next_lane.query_row(params![after], |row| row.get(0)).optional()?.map(Lane) else {
            return Ok((lanes, None));
        };
        if lanes.len() == most || visited == MAX_LANES_VISITED {
            return Ok((lanes, cursor));
        }
        visited += 1;
        let busy = in_flight.get(&lane).copied().unwrap_or_default();
        if busy < request.lane_limit
            && let Some((endpoint, limit)) = lane_limit(session, &lane, request.lane_limit)?
            && busy < limit
        {
            lanes.push(OpenLane { lane: lane.clone(), free: limit - busy, endpoint });
        }
        cursor = Some(lane);
    }
}

/// The endpoint of a lane, if it has one, and how many may be in flight; none when the endpoint is held back.
fn lane_limit(session: &Session, lane: &Lane, limit: u32) -> rusqlite::Result<Option<(Option<Arc<Endpoint>>, u32)>> {
    let Ok(id) = Uuid::try_parse(&lane.0) else {
        return Ok(Some((None, limit)));
    };
    let Some(endpoint) = rows::find_endpoint(&session.connection, EndpointId::from_uuid(id))? else {
        return Ok(Some((None, limit)));
    };
    if endpoint.status != EndpointStatus::Active {
        return Ok(None);
    }
    let limit = endpoint.settings.max_in_flight.map_or(limit, |own| own.get().min(limit));
    Ok(Some((Some(Arc::new(endpoint)), limit)))
}

/// Takes up to `wanted` from the front of a lane, and returns how many there were.
fn take(
    session: &Session,
    request: &ClaimRequest,
    lane: &OpenLane,
    wanted: u32,
    claims: &mut Vec<Claim>,
) -> rusqlite::Result<u32> {
    if wanted == 0 {
        return Ok(0);
    }
    let connection = &session.connection;
    let lease_until: Micros = clock::after(session.now, request.lease);
    let mut grant = connection.prepare_cached(sql!("claim_grant"))?;
    let mut statement = connection.prepare_cached(sql!("claim"))?;
    let mut rows = statement.query(params![lane.lane.0, wanted])?;
    let mut last_position: Option<i64> = None;
    let mut taken = 0;
    while let Some(row) = rows.next()? {
        let delivery_id: Uuid = row.get("delivery_id")?;
        let lease_token = Uuid::new_v4();
        let endpoint_id: Option<Uuid> = row.get("endpoint_id")?;
        grant.execute(params![delivery_id, request.worker.as_str(), lease_token, lease_until])?;
        claims.push(Claim {
            lease: Lease { delivery_id: DeliveryId::from_uuid(delivery_id), token: LeaseToken(lease_token) },
            lane: lane.lane.clone(),
            tenant: row.get("tenant")?,
            event_id: EventId::from_uuid(row.get("event_id")?),
            event_type: row.get("event_type")?,
            payload: Bytes::from(row.get::<_, Vec<u8>>("payload")?),
            destination_url: row.get("destination_url")?,
            attempt_count: row.get("attempt_count")?,
            earlier_attempts: row.get("earlier_attempts")?,
            endpoint: endpoint_id.and_then(|_| lane.endpoint.clone()),
        });
        last_position = Some(row.get("position")?);
        taken += 1;
    }
    if let Some(last_position) = last_position {
        let mut leave = connection.prepare_cached(sql!("claim_leave_ready"))?;
        leave.execute(params![lane.lane.0, last_position])?;
    }
    Ok(taken)
}
