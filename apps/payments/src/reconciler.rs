//! `payments reconciler`: looks at the chain, and changes payment requests by what it says.
//!
//! Any number of replicas may run. Each takes open requests under leases, looks at the chain without holding a transaction,
//! and then changes or releases each by the token of its claim. A replica that crashes or is too slow loses its leases by the
//! database's clock; what it writes afterwards finds no lease and changes nothing.
//!
//! While the node cannot be reached nothing is decided, not even that a request has expired: it may have been paid.

use std::pin::pin;

use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::chain::{Chain, ChainError};
use crate::config::ReconcilerConfig;
use crate::failure::Failure;
use crate::requests::{Claim, Requests, Transition};
use crate::status::{Observation, next_status};

/// A replica.
#[derive(Debug)]
pub(crate) struct Reconciler {
    requests: Requests,
    chain: Chain,
    config: ReconcilerConfig,
}

impl Reconciler {
    pub(crate) fn new(requests: Requests, config: ReconcilerConfig) -> Result<Self, Failure> {
        let chain = Chain::new(config.rpc_url.clone(), config.rpc_timeout, config.min_confirmations)?;
        Ok(Self { requests, chain, config })
    }

    /// Reconciles until `shutdown`. Trouble with the node or the database is told and waited out.
    pub(crate) async fn run(self, shutdown: impl Future<Output = ()>) {
        info!(
            worker_id = %self.config.worker,
            node = self.config.rpc_url.host_str(),
            min_confirmations = self.config.min_confirmations,
            webhooks_enabled = self.config.webhooks_enabled,
            "reconciling"
        );
        let mut shutdown = pin!(shutdown);
        loop {
            // A round is bounded by the node's timeout, so it is not cut short: its leases would have to expire.
            let is_full = self.round().await.unwrap_or_else(|failure| {
                warn!(worker_id = %self.config.worker, "a round failed: {failure}");
                false
            });
            let pause = if is_full { std::time::Duration::ZERO } else { self.config.interval };
            tokio::select! {
                () = &mut shutdown => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        info!(worker_id = %self.config.worker, "stopped");
    }

    /// Looks once at as many requests as fit into a round, and says whether there may be more.
    async fn round(&self) -> Result<bool, Failure> {
        let ReconcilerConfig { worker, lease, batch, interval, .. } = &self.config;
        let claims = self.requests.claim(worker, *lease, *batch).await?;
        if claims.is_empty() {
            return Ok(false);
        }
        let is_full = claims.len() == *batch as usize;
        let observed = match self.observe(&claims).await {
            Ok(observed) => observed,
            Err(error) => {
                self.requests.release(worker, &claims, *interval).await?;
                return Err(error.into());
            }
        };
        let mut unchanged = Vec::new();
        for (claim, observation) in claims.into_iter().zip(observed) {
            let next = observation.and_then(|observation| next_status(claim.status, observation, claim.is_past));
            let Some(next) = next else {
                unchanged.push(claim);
                continue;
            };
            let tells = self.config.webhooks_enabled;
            match self.requests.transition(worker, &claim, next, *interval, tells).await {
                Ok(Transition::Done) => {
                    info!(payment_request_id = %claim.id, from = %claim.status, to = %next, "status changed");
                }
                Ok(Transition::Overtaken) => {
                    debug!(payment_request_id = %claim.id, "too late: its lease is over, or another replica was quicker");
                }
                // The transaction is rolled back, so the request is as it was. Others may fare better.
                Err(failure) => {
                    warn!(payment_request_id = %claim.id, "the transition failed: {failure}");
                    unchanged.push(claim);
                }
            }
        }
        self.requests.release(worker, &unchanged, *interval).await?;
        Ok(is_full)
    }

    /// What the chain says of each request, in their order; nothing of one for which the node has no sensible answer.
    async fn observe(&self, claims: &[Claim]) -> Result<Vec<Option<Observation>>, ChainError> {
        let head = self.chain.head().await?;
        let mut looks = JoinSet::new();
        for (index, claim) in claims.iter().enumerate() {
            let (chain, address, amount_wei) = (self.chain.clone(), claim.address.clone(), claim.amount_wei);
            looks.spawn(async move { (index, chain.observe(head, &address, amount_wei).await) });
        }
        let mut observed = vec![None; claims.len()];
        while let Some(look) = looks.join_next().await {
            let (index, look) = look.expect("looking does not panic");
            match look {
                Ok(observation) => observed[index] = Some(observation),
                Err(error) => warn!(payment_request_id = %claims[index].id, "no look at the chain: {error}"),
            }
        }
        Ok(observed)
    }
}
