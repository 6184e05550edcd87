//! A socket whose other side gets only so much time to read, and on which every error is told as a problem.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::activity::Activity;
use crate::api::Problem;

/// How a connection begins that speaks HTTP/2.
const HTTP2: &[u8] = b"PRI * HTTP/2";

pub(super) struct Patient {
    stream: TcpStream,
    activity: Activity,
    write_timeout: Duration,
    /// Runs while the other side does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    /// None until the client has said something.
    http2: Option<bool>,
    /// What is sent in the place of something else, and not sent yet.
    instead: Bytes,
}

impl Patient {
    pub(super) fn new(stream: TcpStream, activity: Activity, write_timeout: Duration) -> Self {
        Self { stream, activity, write_timeout, stalled: None, http2: None, instead: Bytes::new() }
    }

    /// Gives up when the socket has taken nothing for too long.
    fn patiently<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }

    fn write_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.instead);
            let written = ready!(self.patiently(context, written))?;
            self.instead.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Where there is no request, an answer is hyper's own: what came in is not HTTP that it understands. It has a
    /// status and nothing else, so a whole problem is sent in its place.
    fn problem_for(&self, answer: &[u8]) -> Option<Bytes> {
        if self.http2 == Some(true) || !self.activity.is_idle() || !answer.starts_with(b"HTTP/1.1 4") {
            return None;
        }
        let status: u16 = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
        let problem = match status {
            414 => Problem::new(414, "uri_too_long", "path and query are too long"),
            431 => Problem::new(431, "headers_too_large", "the headers are too many or too large"),
            _ => Problem::new(status, "request_malformed", "this is not an HTTP request that can be understood"),
        };
        Some(as_answer(&problem))
    }
}

/// A problem as an answer on a connection that is closed after it.
pub(super) fn as_answer(problem: &Problem) -> Bytes {
    let body = serde_json::to_string(problem).expect("a problem is plain data");
    let retry_after = if problem.status == 503 { "retry-after: 1\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n{retry_after}\
         x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
        problem.status,
        problem.title,
        body.len()
    );
    Bytes::from(head + &body)
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        if !read.is_empty() {
            let http2 = *self.http2.get_or_insert_with(|| read.starts_with(HTTP2));
            // HTTP/2 has much to say between requests.
            if !http2 {
                self.activity.heard();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.write_instead(context))?;
        if let Some(instead) = self.problem_for(bytes) {
            self.instead = instead;
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.patiently(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices {
            return self.poll_write(context, only);
        }
        ready!(self.write_instead(context))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.patiently(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_instead(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_instead(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
