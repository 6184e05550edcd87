//! Claiming: a fair share of every lane.
//!
//! A skip-scan steps from lane to lane through the primary key of `postrider_ready`, one seek per lane, so its cost
//! depends on the number of lanes looked at and not on what waits in them: a lane with a million rows costs as much as
//! a lane with one, and a lane at its limit is passed over without reading any of its rows. The free slots are divided
//! equally between the lanes that were found; what some lanes cannot use goes to the others, so that a lane that is
//! alone gets everything. An endpoint with a rate limit gives no more than there are tokens in its bucket.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider::store::{Claim, ClaimRequest, Claimed, Lane};
use postrider::{DeliveryId, Endpoint, EndpointStatus, EventId, Lease, LeaseToken, RateLimit};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::clock::{self, Micros};
use crate::remembered::Facts;
use crate::rows;
use crate::sql::sql;
use crate::vault::Vault;
use crate::writer::Session;

/// At most so many lanes share a claim, so that each gets a few.
const MAX_LANES: usize = 32;
/// At most so many lanes are looked at, also when they are at their limits or held back.
const MAX_LANES_VISITED: usize = 512;

pub(crate) fn claim(session: &mut Session, vault: &Vault, request: &ClaimRequest) -> rusqlite::Result<Claimed> {
    // Before looking, so that whatever becomes ready from here on wakes the next wait. A claim that goes on in the middle
    // does not look at the lanes before it, so it says nothing of what has happened there.
    if request.after.is_none() {
        session.wake.ready.attend();
    }
    let at = rows::timestamp(session.now)?;
    let Found { mut lanes, cursor, mut next_token_in } = open_lanes(session, vault, request)?;
    let mut claims = Vec::new();
    if !lanes.is_empty() {
        session.claimers.insert(request.worker.as_str().to_owned());
    }
    let mut left = request.limit;
    let mut open: Vec<&mut OpenLane> = lanes.iter_mut().collect();
    while left > 0 && !open.is_empty() {
        let share = (left / u32::try_from(open.len()).unwrap_or(u32::MAX)).max(1);
        let mut still_open = Vec::with_capacity(open.len());
        for lane in open {
            let wanted = share.min(lane.may_give()).min(left);
            let taken = take(session, request, lane, wanted, &mut claims)?;
            left -= taken;
            lane.taken += taken;
            // A lane that gave less than it was asked for has no more.
            if wanted > 0 && taken == wanted && lane.may_give() > 0 {
                still_open.push(lane);
            }
        }
        open = still_open;
    }
    for lane in lanes {
        next_token_in = sooner(next_token_in, pay(session, &lane)?);
    }
    Ok(Claimed { claims, cursor, at, next_token_in })
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// What a lane may have.
#[derive(Clone, Copy)]
struct Slots {
    limit: u32,
    /// How many more than that.
    ahead: u32,
    /// How many of it the caller has.
    busy: u32,
}

impl Slots {
    fn free(self) -> u32 {
        self.limit.saturating_add(self.ahead).saturating_sub(self.busy)
    }
}

/// A lane that may give something.
struct OpenLane {
    lane: Lane,
    /// What its in-flight limit leaves.
    free: u32,
    taken: u32,
    endpoint: Option<Arc<Endpoint>>,
    bucket: Option<Bucket>,
}

impl OpenLane {
    /// How many more may be taken.
    fn may_give(&self) -> u32 {
        let most = self.bucket.map_or(self.free, |bucket| bucket.tokens().min(self.free));
        most.saturating_sub(self.taken)
    }
}

/// What a look at the lanes has found.
struct Found {
    lanes: Vec<OpenLane>,
    /// The last lane that was looked at, unless there is none after it.
    cursor: Option<Lane>,
    /// When the first of the lanes that were passed over for lack of a token gets one.
    next_token_in: Option<Duration>,
}

fn open_lanes(session: &Session, vault: &Vault, request: &ClaimRequest) -> rusqlite::Result<Found> {
    let in_flight: HashMap<&Lane, u32> = request.in_flight.iter().map(|(lane, count)| (lane, *count)).collect();
    let ahead: HashMap<&Lane, u32> = request.ahead.iter().map(|(lane, count)| (lane, *count)).collect();
    // More lanes than slots would leave some without a turn, although the cursor has passed them.
    let most = MAX_LANES.min(request.limit as usize);
    let mut next_lane = session.connection.prepare_cached(sql!("claim_next_lane"))?;
    let mut found = Found { lanes: Vec::new(), cursor: request.after.clone(), next_token_in: None };
    let mut visited = 0;
    loop {
        let after = found.cursor.as_ref().map_or("", |lane| lane.0.as_str());
        let Some(lane) = next_lane.query_row(params![after], |row| row.get(0)).optional()?.map(Lane) else {
            return Ok(Found { cursor: None, ..found });
        };
        if found.lanes.len() == most || visited == MAX_LANES_VISITED {
            return Ok(found);
        }
        visited += 1;
        let slots = Slots {
            limit: request.lane_limit,
            ahead: ahead.get(&lane).copied().unwrap_or_default(),
            busy: in_flight.get(&lane).copied().unwrap_or_default(),
        };
        if slots.free() > 0
            && let Some(open) = open_lane(session, vault, &lane, slots)?
        {
            match open.bucket.filter(|bucket| bucket.tokens() == 0) {
                Some(empty) => found.next_token_in = sooner(found.next_token_in, Some(empty.next_token_in())),
                None => found.lanes.push(open),
            }
        }
        found.cursor = Some(lane);
    }
}

/// The lane with its endpoint's limits; none when the endpoint is held back or has no slot free.
fn open_lane(session: &Session, vault: &Vault, lane: &Lane, slots: Slots) -> rusqlite::Result<Option<OpenLane>> {
    let bare = OpenLane { lane: lane.clone(), free: slots.free(), taken: 0, endpoint: None, bucket: None };
    let Ok(id) = Uuid::try_parse(&lane.0) else {
        return Ok(Some(bare));
    };
    let mut statement = session.connection.prepare_cached(sql!("claim_endpoint"))?;
    let mut found = statement.query(params![id])?;
    let Some(row) = found.next()? else {
        return Ok(Some(bare));
    };
    if row.get_ref("status")?.as_str()? != EndpointStatus::Active.as_str() {
        return Ok(None);
    }
    let endpoint = vault.known(row)?;
    let (own, rate) = (endpoint.settings.max_in_flight, endpoint.settings.rate_limit);
    let slots = Slots {
        limit: own.map_or(slots.limit, |own| own.get().min(slots.limit)),
        ahead: if own.is_some() || rate.is_some() { 0 } else { slots.ahead },
        ..slots
    };
    if slots.free() == 0 {
        return Ok(None);
    }
    let bucket = rate.map(|limit| look_into_bucket(session, id, limit)).transpose()?;
    Ok(Some(OpenLane { free: slots.free(), endpoint: Some(endpoint), bucket, ..bare }))
}

fn look_into_bucket(session: &Session, id: Uuid, limit: RateLimit) -> rusqlite::Result<Bucket> {
    let full_at = rows::find(&session.connection, sql!("claim_bucket"), params![id])?;
    let bucket = Bucket::new(limit, full_at, session.now);
    if bucket.is_corrected() {
        keep_bucket(session, id, &bucket)?;
    }
    Ok(bucket)
}

fn keep_bucket(session: &Session, id: Uuid, bucket: &Bucket) -> rusqlite::Result<()> {
    session.connection.prepare_cached(sql!("claim_bucket_keep"))?.execute(params![id, bucket.full_at()])?;
    Ok(())
}

/// Takes the tokens of what was taken from the lane, and says when there is one again if something waits for it.
fn pay(session: &Session, lane: &OpenLane) -> rusqlite::Result<Option<Duration>> {
    let (Some(mut bucket), Some(endpoint)) = (lane.bucket, &lane.endpoint) else {
        return Ok(None);
    };
    if lane.taken > 0 {
        bucket.take(lane.taken);
        keep_bucket(session, endpoint.id.as_uuid(), &bucket)?;
    }
    if bucket.tokens() > 0 || lane.taken >= lane.free {
        return Ok(None);
    }
    let waits: Option<i64> = rows::find(&session.connection, sql!("claim_waits"), params![lane.lane.0])?;
    Ok(waits.map(|_| bucket.next_token_in()))
}

/// Takes up to `wanted` from the front of a lane, and returns how many there were.
fn take(
    session: &mut Session,
    request: &ClaimRequest,
    lane: &OpenLane,
    wanted: u32,
    claims: &mut Vec<Claim>,
) -> rusqlite::Result<u32> {
    if wanted == 0 {
        return Ok(0);
    }
    let (connection, remembered) = (&session.connection, &mut session.remembered);
    let lease_until: Micros = clock::after(session.now, request.lease);
    let mut grant = connection.prepare_cached(sql!("claim_grant"))?;
    let mut statement = connection.prepare_cached(sql!("claim"))?;
    let mut rows = statement.query(params![lane.lane.0, wanted])?;
    let mut last_position: Option<i64> = None;
    let mut taken = 0;
    // By place and not by name, which would be looked up for each row again.
    while let Some(row) = rows.next()? {
        let delivery_id: Uuid = row.get(1)?;
        let lease_token = Uuid::new_v4();
        let endpoint_id: Option<Uuid> = row.get(10)?;
        grant.execute(params![delivery_id, request.worker.as_str(), lease_token, lease_until])?;
        let (tenant, event_id): (String, Uuid) = (row.get(2)?, row.get(3)?);
        let (attempt_count, earlier_attempts) = (row.get(7)?, row.get(8)?);
        let (topic, metadata) = (row.get(11)?, row.get(12)?);
        let facts =
            Facts { attempt_count, earlier_attempts, endpoint_id, tenant: tenant.clone(), event_id, topic, metadata };
        remembered.keep(lease_token, facts);
        claims.push(Claim {
            lease: Lease { delivery_id: DeliveryId::from_uuid(delivery_id), token: LeaseToken(lease_token) },
            lane: lane.lane.clone(),
            tenant,
            event_id: EventId::from_uuid(event_id),
            event_type: row.get(4)?,
            payload: Bytes::from(row.get::<_, Vec<u8>>(5)?),
            destination_url: row.get(6)?,
            attempt_count,
            earlier_attempts,
            abandoned_count: row.get(9)?,
            endpoint: endpoint_id.and_then(|_| lane.endpoint.clone()),
        });
        last_position = Some(row.get(0)?);
        taken += 1;
    }
    if let Some(last_position) = last_position {
        let mut leave = connection.prepare_cached(sql!("claim_leave_ready"))?;
        leave.execute(params![lane.lane.0, last_position])?;
    }
    Ok(taken)
}
