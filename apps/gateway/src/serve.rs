//! The whole gateway in one process: HTTP in front, the router behind, one file below.

use std::future::{Future, IntoFuture as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider::{InvalidDispatcher, StoreError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Gateway;
use crate::http::{App, routes};

/// How long requests that are under way at a stop may take.
const HTTP_GRACE: Duration = Duration::from_secs(5);

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anybody who can reach it could use it.
    #[error("GATEWAY_TOKEN is not set, and {0} can be reached from other machines; set it, or listen on 127.0.0.1")]
    TokenMissing(SocketAddr),
    /// A setting cannot hold.
    #[error(transparent)]
    Router(#[from] InvalidDispatcher),
    /// The router did not start: another process dispatches from the file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The listener broke.
    #[error("the HTTP server: {0}")]
    Http(#[from] std::io::Error),
}

/// Serves HTTP on `listener` and delivers what is due, until `shutdown` completes. Then nothing new is accepted or
/// attempted, what is under way is finished, and what does not end in time stays in the file for the next start.
pub async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    token: Option<String>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    let token = token.filter(|token| !token.is_empty());
    if token.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::TokenMissing(address));
    }
    let (stop, stopping) = watch::channel(false);
    let router = gateway.webhook_router()?;
    let app = App { gateway: Arc::new(gateway), token: token.map(Arc::from), stopping: stopping.clone() };
    let server = axum::serve(listener, routes(app)).with_graceful_shutdown(told(stopping.clone()));

    let mut delivering = tokio::spawn(router.run(told(stopping)));
    let mut serving = tokio::spawn(server.into_future());
    tracing::info!("listening on http://{address}");
    tokio::select! {
        () = shutdown => {}
        ended = &mut delivering => {
            serving.abort();
            ended.expect("the router does not panic")?;
            return Ok(());
        }
        ended = &mut serving => {
            ended.expect("the server does not panic")?;
        }
    }
    stop.send_replace(true);
    let totals = delivering.await.expect("the router does not panic")?;
    tracing::info!(delivered = totals.delivered, "stopped");
    if !serving.is_finished() && timeout(HTTP_GRACE, &mut serving).await.is_err() {
        serving.abort();
    }
    Ok(())
}

async fn told(mut stopping: watch::Receiver<bool>) {
    // Whoever could tell is gone as well: that is an end too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
