//! What goes on on one connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::timeout;

/// Shared by a connection's socket, its requests and its watchdog.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Requests under way: from their head to the end of their answer.
    active: usize,
    /// Requests so far.
    begun: u64,
    /// Something came in since the last request ended.
    heard: bool,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Active(Activity);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.active -= 1);
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    pub(super) fn begin(&self) -> Active {
        self.0.send_modify(|state| *state = State { active: state.active + 1, begun: state.begun + 1, heard: false });
        Active(self.clone())
    }

    /// Something came in. Between requests it is the beginning of the next one.
    pub(super) fn heard(&self) {
        self.0.send_if_modified(|state| state.active == 0 && !std::mem::replace(&mut state.heard, true));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.0.borrow().active == 0
    }

    /// Returns when the client has been silent between requests for `keep_alive`, or has not finished the head of a
    /// request within `header_read`.
    pub(super) async fn neglected(&self, header_read: Duration, keep_alive: Duration) {
        let mut states = self.0.subscribe();
        loop {
            let idle = states.wait_for(|state| state.active == 0).await;
            let begun = idle.expect("this is one of its senders").begun;
            // A connection is made in order to ask something.
            let mut speaking = begun == 0;
            if !speaking {
                let next = states.wait_for(|state| state.begun != begun || state.heard);
                let Ok(state) = timeout(keep_alive, next).await else { return };
                speaking = state.expect("this is one of its senders").begun == begun;
            }
            if speaking && timeout(header_read, states.wait_for(|state| state.begun != begun)).await.is_err() {
                return;
            }
        }
    }
}

/// The body of an answer, with whose end the request ends.
pub(super) struct Tracked {
    pub(super) body: Body,
    pub(super) _active: Active,
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
