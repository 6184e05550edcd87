//! One connection, from its beginning to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service as _;

use super::ServerConfig;
use super::activity::{Activity, Tracked};
use super::patient::{Patient, as_answer};
use crate::api::Problem;
use crate::http::Peer;

/// How much of an HTTP/1 request is read ahead, its head included. More than a head may have, so that one that is too
/// large is mostly answered by the API, which says what the limit is.
const READ_AHEAD_BYTES: usize = 128 * 1024;

/// Requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 256;

/// How often an HTTP/2 client that says nothing is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// What a connection that is to be closed gets to do so by itself, once it has no request.
const CLOSING: Duration = Duration::from_secs(1);

pub(super) async fn serve(
    stream: TcpStream,
    router: Router,
    config: Arc<ServerConfig>,
    mut closing: watch::Receiver<bool>,
) {
    // An answer is written at once as a whole; there is nothing to wait for.
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok().map(Peer);
    let activity = Activity::new();
    let service = {
        let activity = activity.clone();
        hyper::service::service_fn(move |request: Request<Incoming>| {
            let active = activity.begin();
            let mut request = request.map(Body::new);
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let answering = router.clone().call(request);
            async move {
                let answer = match answering.await {
                    Ok(answer) => answer,
                    Err(error) => match error {},
                };
                Ok::<Response<Tracked>, Infallible>(answer.map(|body| Tracked { body, _active: active }))
            }
        })
    };
    let io = TokioIo::new(Patient::new(stream, activity.clone(), config.write_timeout));
    let builder = builder(&config);
    let mut connection = pin!(builder.serve_connection(io, service));
    let neglected = pin!(activity.neglected(config.header_read_timeout, config.keep_alive_timeout));
    let stopping = pin!(closing.wait_for(|closing| *closing));
    tokio::select! {
        // Whatever goes wrong with a client's connection is the client's business.
        _ = connection.as_mut() => return,
        () = neglected => {}
        _ = stopping => {}
    }
    connection.as_mut().graceful_shutdown();
    while timeout(CLOSING, connection.as_mut()).await.is_err() {
        if activity.is_idle() {
            return;
        }
    }
}

fn builder(config: &ServerConfig) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The connection has its own, which tells a slow head from a client that has nothing to ask just now.
        .header_read_timeout(None)
        .max_headers(config.max_headers)
        .max_buf_size(READ_AHEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(u32::try_from(config.max_header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Tells one client too many that it is.
pub(super) async fn turn_away(mut stream: TcpStream) {
    let telling = async {
        let problem = Problem::new(503, "overloaded", "too many connections at once");
        stream.write_all(&as_answer(&problem)).await?;
        stream.shutdown().await?;
        // A socket that is closed with something unread in it takes the answer with it.
        let mut unread = [0; 4_096];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<(), std::io::Error>(())
    };
    let _ = timeout(CLOSING, telling).await;
}
