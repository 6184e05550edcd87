//! A connection's bytes, plain or under TLS: how many may come unasked, and whether the other side is still there.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::balance::Balance;

/// How much an HTTP/1 connection may deliver after the last byte that was sent on it, before the body is counted.
///
/// The HTTP library bounds a head, and our own reading bounds a body. Neither bounds interim responses, which it skips for
/// as long as they come. This does: a response that is read at all stays far below.
const UNASKED_BYTES: usize = 256 * 1024;
/// What one byte of a body may cost on the wire when it comes in chunks of one.
const CHUNK_OVERHEAD: usize = 8;

/// More came than any response that is read may have.
#[derive(Debug, thiserror::Error)]
#[error("the receiver sent far more than a response's head before the response was complete")]
pub(super) struct Flood;

/// A kept connection turned out to be over before a byte of the next request was written to it.
#[derive(Debug, thiserror::Error)]
#[error("the receiver has closed the connection")]
pub(super) struct Stale;

/// A connection to a receiver.
pub(super) struct Stream {
    io: Io,
    limit: Limit,
    arrived: usize,
    /// Whether the last write took everything that it was offered.
    written_out: bool,
}

/// What may come.
enum Limit {
    /// HTTP/1: so many bytes between two writes.
    PerExchange(usize),
    /// HTTP/2, whose requests and responses share a connection.
    Balanced(Balance),
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn plain(tcp: TcpStream, kept_response_bytes: usize) -> Self {
        let limit = Limit::PerExchange(allowance(kept_response_bytes));
        Self { io: Io::Plain(tcp), limit, arrived: 0, written_out: false }
    }

    pub(super) fn tls(tls: TlsStream<TcpStream>, kept_response_bytes: usize) -> Self {
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let limit = if http2 {
            Limit::Balanced(Balance::new(kept_response_bytes))
        } else {
            Limit::PerExchange(allowance(kept_response_bytes))
        };
        Self { io: Io::Tls(Box::new(tls)), limit, arrived: 0, written_out: false }
    }
}

impl Io {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl Stream {
    fn is_http2(&self) -> bool {
        matches!(self.limit, Limit::Balanced(_))
    }

    /// Counts what was read against the limit.
    fn count(&mut self, read: &[u8]) -> Result<(), Flood> {
        self.arrived = self.arrived.saturating_add(read.len());
        match &mut self.limit {
            Limit::PerExchange(allowance) if self.arrived > *allowance => Err(Flood),
            Limit::PerExchange(_) => Ok(()),
            Limit::Balanced(balance) => balance.read(read),
        }
    }

    /// Refuses the first write of a request if the receiver has said anything since its last response: it is closing.
    ///
    /// The system knows of a closing before the runtime does, and longer before the more there is to do. In between the
    /// connection still counts as idle, and a request that is written to it is lost for an attempt. One look at the socket
    /// settles it while the request is still ours to send elsewhere.
    ///
    /// A request is offered in one piece, head and body. So the first write is the one that follows a write which took all
    /// that it was offered, and at least a byte of a response.
    fn begin_write(&mut self) -> io::Result<()> {
        let first = self.written_out && self.arrived > 0;
        self.arrived = 0;
        if !first || self.is_http2() {
            return Ok(());
        }
        match SockRef::from(self.io.tcp()).peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            _ => Err(io::Error::other(Stale)),
        }
    }

    fn end_write(&mut self, offered: &[IoSlice<'_>], written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut left = match written {
            Poll::Ready(Ok(count)) => count,
            _ => 0,
        };
        self.written_out = left == offered.iter().map(|slice| slice.len()).sum::<usize>();
        if let Limit::Balanced(balance) = &mut self.limit {
            for slice in offered {
                let count = left.min(slice.len());
                balance.written(&slice[..count]);
                left -= count;
            }
        }
        written
    }
}

fn allowance(kept_response_bytes: usize) -> usize {
    kept_response_bytes.saturating_mul(CHUNK_OVERHEAD).saturating_add(UNASKED_BYTES)
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.is_http2() { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Limit::Balanced(balance) = &mut this.limit
            && balance.is_turn_over()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = match &mut this.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Io::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        };
        if let (Poll::Pending, Limit::Balanced(balance)) = (&read, &mut this.limit) {
            balance.waits();
        }
        ready!(read)?;
        Poll::Ready(this.count(&buffer.filled()[before..]).map_err(io::Error::other))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begin_write()?;
        let written = match &mut this.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Io::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        };
        this.end_write(&[IoSlice::new(bytes)], written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begin_write()?;
        let written = match &mut this.io {
            Io::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Io::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        };
        this.end_write(slices, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(tcp) => tcp.is_write_vectored(),
            Io::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Io::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Io::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
