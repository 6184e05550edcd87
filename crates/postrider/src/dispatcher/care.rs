//! Endpoints to which nothing may be sent, because their settings cannot be read.
//!
//! A secret that does not open, or settings that are damaged, will not mend by trying again: without care their deliveries
//! would be claimed and given back for ever. So the endpoint is disabled, once and for the reason that is found, and its
//! backlog waits until an operator has mended and resumed it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Backoff, Shared, release};
use crate::endpoint::{Endpoint, EndpointStatus};
use crate::ids::EndpointId;
use crate::lease::Lease;
use crate::store::{Claim, Operator, StoreError};

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

/// Disables the endpoint, unless somebody has done so or has mended it meanwhile.
async fn disable(shared: &Shared, id: EndpointId) -> Result<(), StoreError> {
    let _caring = shared.caring.lock().await;
    let Some(endpoint) = shared.store.endpoint(id).await? else { return Ok(()) };
    let Some(trouble) = trouble(&endpoint).filter(|_| endpoint.status == EndpointStatus::Active) else { return Ok(()) };
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
