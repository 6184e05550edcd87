//! Endpoints to which nothing may be sent, because their settings cannot be read.
//!
//! A secret that does not open, or settings that are damaged, will not mend by trying again: without care their deliveries
//! would be claimed and given back for ever. So the endpoint is disabled, once and for the reason that is found, and its
//! backlog waits until an operator has mended and resumed it.
//!
//! A secret whose key this process lacks is another matter. While keys are being changed some processes have the new one and
//! some do not, and one that does not must not stop the deliveries of those that do. It leaves the endpoint's lane alone
//! for a while, and says so.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Backoff, Shared, release};
use crate::endpoint::{Endpoint, EndpointStatus};
use crate::ids::EndpointId;
use crate::lease::Lease;
use crate::store::{Claim, Lane, Operator, StoreError};

/// How long a lane whose key is missing is left to others before it is looked at again.
const LEFT_ALONE: Duration = Duration::from_secs(30);

/// Lanes that this process leaves to others, and until when.
#[derive(Debug, Default)]
pub(super) struct LeftAlone(Mutex<HashMap<Lane, Instant>>);

impl LeftAlone {
    /// The lanes that are left alone at `now`.
    pub(super) fn lanes(&self, now: Instant) -> Vec<Lane> {
        let mut lanes = self.0.lock().expect("no code panics while it holds this lock");
        lanes.retain(|_, until| *until > now);
        lanes.keys().cloned().collect()
    }

    /// Returns whether it was not left alone before.
    fn leave(&self, lane: Lane) -> bool {
        let until = Instant::now() + LEFT_ALONE;
        self.0.lock().expect("no code panics while it holds this lock").insert(lane, until).is_none()
    }
}

/// Under which name it stands in the audit trail.
const OPERATOR: &str = "postrider";

fn trouble(endpoint: &Endpoint) -> Option<&str> {
    endpoint.trouble.as_deref()
}

/// Whether nothing may be sent to where this goes.
pub(super) fn is_troubled(claim: &Claim) -> bool {
    claim.endpoint.as_deref().and_then(trouble).is_some()
}

/// Disables the endpoints of these claims, then gives the claims back. The slots are kept until that is done, so that a
/// store that fails is not asked for the same deliveries again and again.
pub(super) async fn set_aside(shared: Arc<Shared>, claims: Vec<Claim>) {
    let mut by_endpoint: BTreeMap<EndpointId, Vec<Lease>> = BTreeMap::new();
    for claim in claims {
        if let Some(endpoint) = &claim.endpoint {
            if endpoint.lacks_our_key() {
                leave_alone(&shared, endpoint);
            }
            by_endpoint.entry(endpoint.id).or_default().push(claim.lease);
        }
    }
    for (id, leases) in by_endpoint {
        let mut backoff = Backoff::new();
        while let Err(error) = disable(&shared, id).await {
            shared.store_failed("disable an endpoint", &error);
            backoff.wait().await;
        }
        release(&shared, &leases).await;
        shared.held.remove(leases.iter().map(|lease| lease.token));
    }
}

fn leave_alone(shared: &Shared, endpoint: &Endpoint) {
    if shared.left_alone.leave(Lane::of_endpoint(endpoint.id)) {
        tracing::error!(
            endpoint_id = %endpoint.id,
            tenant = endpoint.tenant,
            worker_id = %shared.settings.worker,
            code = "endpoint_left_alone",
            "left an endpoint to other dispatchers for {LEFT_ALONE:?}: {}",
            endpoint.trouble.as_deref().unwrap_or_default()
        );
    }
}

/// Disables the endpoint, unless somebody has done so or has mended it meanwhile.
async fn disable(shared: &Shared, id: EndpointId) -> Result<(), StoreError> {
    let _caring = shared.caring.lock().await;
    let Some(endpoint) = shared.store.endpoint(id).await? else { return Ok(()) };
    let ours_to_tell = endpoint.status == EndpointStatus::Active && !endpoint.lacks_our_key();
    let Some(trouble) = trouble(&endpoint).filter(|_| ours_to_tell) else { return Ok(()) };
    let operator = Operator(OPERATOR.to_owned());
    shared.store.set_endpoint_status(id, EndpointStatus::Disabled, Some(trouble), &operator).await?;
    tracing::error!(
        endpoint_id = %id,
        tenant = endpoint.tenant,
        worker_id = %shared.settings.worker,
        code = "endpoint_unreadable",
        "disabled an endpoint whose settings cannot be read, nothing is sent to it: {trouble}"
    );
    Ok(())
}
