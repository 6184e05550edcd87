//! Explanations.

use postrider::DeliveryId;
use postrider::why::{WhyInput, why};

use super::{Caller, Service};
use crate::api::Problem;
use crate::api::why::Why;

impl Service {
    /// Why a delivery is in the state it is, and what happens next.
    pub async fn why(&self, caller: &Caller, id: DeliveryId) -> Result<Why, Problem> {
        let detail = self.found_delivery(caller, id).await?;
        let endpoint = match detail.delivery.endpoint_id {
            Some(id) => self.store().endpoint(id).await?,
            None => None,
        };
        let now = self.store().health().await?.at;
        let default_policy = &self.settings().retry_policy;
        let why = why(&WhyInput { detail: &detail, endpoint: endpoint.as_ref(), now, default_policy });
        Ok(Why { summary: why.summary, facts: why.facts })
    }
}
