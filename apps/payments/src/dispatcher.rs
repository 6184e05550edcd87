//! `payments webhook-dispatcher`: Postrider's dispatcher, told how this system signs and retries.

use std::sync::Arc;

use http::HeaderName;
use postrider::signature::Signed;
use postrider::{Dispatcher, SignatureScheme};
use tracing::info;

use crate::config::DispatcherConfig;
use crate::failure::Failure;
use crate::requests::Requests;

/// What the names of our headers begin with: `X-ChainTx-Signature` and its siblings.
pub(crate) const HEADER_PREFIX: &str = "X-ChainTx-";

/// What later versions of the contract say besides: the event's id as the key by which a receiver recognises a repetition, and
/// which attempt this is.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DELIVERY_ATTEMPT: HeaderName = HeaderName::from_static("x-chaintx-delivery-attempt");

/// `sha256=` and the hexadecimal HMAC of timestamp, dot and body.
pub(crate) fn signature_scheme() -> Result<SignatureScheme, Failure> {
    Ok(SignatureScheme::hmac_sha256_hex(HEADER_PREFIX, Signed::TimestampBody)?)
}

/// Dispatches until `shutdown`, then waits for the attempts under way.
pub(crate) async fn run(
    requests: Requests,
    config: DispatcherConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let dispatcher = Dispatcher::builder(Arc::new(requests.store().clone()))
        .worker_id(config.worker)
        .lease(config.lease)
        .poll_interval(config.poll_interval)
        .timeout(config.timeout)
        .drain_timeout(config.drain_timeout)
        .retry_policy(config.retry_policy)
        .signing_secrets(vec![config.secret])
        .signature(signature_scheme()?)
        .event_id_header(IDEMPOTENCY_KEY)
        .attempt_header(DELIVERY_ATTEMPT)
        .destinations(config.destinations)
        .enabled(config.enabled)
        .build()?;
    info!(worker_id = %dispatcher.worker_id(), heartbeat = ?dispatcher.heartbeat(), enabled = config.enabled, "dispatching");
    dispatcher.run(shutdown).await?;
    Ok(())
}
