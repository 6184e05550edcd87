//! Receivers that misbehave in HTTP/2, frame by frame.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::Identity;
use super::hostile::{Counts, Hostile};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;
const PREFACE_BYTES: usize = 24;
/// Of the first request on a connection, which is the only one that gets anything.
const STREAM: u32 = 1;

/// `:status` by its place in HPACK's table, literally, and kept for later: from then on it is the newest entry.
const INTERIM: &[u8] = b"\x48\x03103";
const SUCCESS: &[u8] = b"\x88";
/// A header named `a` without a value, kept for later: from then on it is the newest entry, and the status the one before.
const SHORTEST: &[u8] = b"\x40\x01a\x00";
const NEWEST: u8 = 0x80 + 62;
const SECOND_NEWEST: u8 = 0x80 + 63;

/// How to misbehave once a request is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http2Attack {
    /// A head that goes on and on.
    EndlessHead,
    /// Settings without end, each of which must be acknowledged.
    Settings,
    /// Pings without end, each of which must be answered.
    Pings,
    /// Interim responses without end, ten bytes each.
    Interim,
    /// Interim responses without end, of hundreds of headers that take a byte each.
    WideInterim,
    /// A body in pieces without a byte in them, without end.
    EmptyPieces,
    /// A body without end, as fast as the windows allow and faster.
    EndlessBody,
    /// A window of no bytes, so that the request's body cannot be sent.
    ClosedWindow,
    /// The stream is reset.
    Reset,
    /// The connection is given up, as if the request had never been seen.
    GoAway,
}

impl Http2Attack {
    /// Those that never stop sending.
    pub const FLOODS: [Self; 7] = [
        Self::EndlessHead,
        Self::Settings,
        Self::Pings,
        Self::Interim,
        Self::WideInterim,
        Self::EmptyPieces,
        Self::EndlessBody,
    ];

    /// What is said before anything else.
    fn greeting(self) -> Vec<u8> {
        match self {
            // SETTINGS_INITIAL_WINDOW_SIZE is zero.
            Self::ClosedWindow => frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
            _ => frame(SETTINGS, 0, 0, &[]),
        }
    }

    /// What is said once, and what is then said until nobody listens.
    fn script(self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::EndlessHead => (
                frame(HEADERS, 0, STREAM, SUCCESS),
                frame(CONTINUATION, 0, STREAM, &[b"\x00\x01a\x7f\x81\x7c".as_slice(), &[b'x'; 16_000]].concat()),
            ),
            Self::Settings => (Vec::new(), frame(SETTINGS, 0, 0, &[]).repeat(1_000)),
            Self::Pings => (Vec::new(), frame(PING, 0, 0, b"hello!!!").repeat(1_000)),
            Self::Interim => (
                frame(HEADERS, END_HEADERS, STREAM, INTERIM),
                frame(HEADERS, END_HEADERS, STREAM, &[NEWEST]).repeat(1_000),
            ),
            Self::WideInterim => (
                frame(HEADERS, END_HEADERS, STREAM, &[INTERIM, SHORTEST].concat()),
                frame(HEADERS, END_HEADERS, STREAM, &[vec![SECOND_NEWEST], vec![NEWEST; 450]].concat()).repeat(20),
            ),
            Self::EmptyPieces => {
                (frame(HEADERS, END_HEADERS, STREAM, SUCCESS), frame(DATA, 0, STREAM, &[]).repeat(1_000))
            }
            Self::EndlessBody => {
                (frame(HEADERS, END_HEADERS, STREAM, SUCCESS), frame(DATA, 0, STREAM, &[b'e'; 16_384]))
            }
            Self::ClosedWindow => Default::default(),
            // ENHANCE_YOUR_CALM, and then: nothing was wrong, and no stream was seen.
            Self::Reset => (frame(RESET, 0, STREAM, &[0, 0, 0, 11]), Vec::new()),
            Self::GoAway => (frame(GO_AWAY, 0, 0, &[0; 8]), Vec::new()),
        }
    }
}

impl Hostile {
    /// Speaks HTTP/2 under TLS, and misbehaves in it.
    pub async fn http2(identity: Identity, attack: Http2Attack) -> Self {
        let acceptor = identity.with_http2().acceptor();
        Self::listen(move |tcp, counts| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(tls) = acceptor.accept(tcp).await {
                    misbehave(tls, attack, &counts).await;
                }
            }
        })
        .await
    }
}

async fn misbehave(tls: TlsStream<TcpStream>, attack: Http2Attack, counts: &Arc<Counts>) {
    let (mut reader, mut writer) = tokio::io::split(tls);
    let (once, forever) = attack.script();
    if !write(&mut writer, &attack.greeting(), counts).await || !request_arrives(&mut reader).await {
        return;
    }
    // What the sender answers to all of this is read and thrown away; it must not be what slows the flood down.
    let listening = tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while matches!(reader.read(&mut buffer).await, Ok(count) if count > 0) {}
    });
    let mut heard = write(&mut writer, &once, counts).await;
    while heard && !forever.is_empty() {
        heard = write(&mut writer, &forever, counts).await;
    }
    let _ = listening.await;
}

async fn write(writer: &mut WriteHalf<impl AsyncWrite>, bytes: &[u8], counts: &Counts) -> bool {
    if writer.write_all(bytes).await.is_err() || writer.flush().await.is_err() {
        return false;
    }
    counts.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
    true
}

/// Reads frames until one begins a request.
async fn request_arrives(reader: &mut ReadHalf<impl AsyncRead>) -> bool {
    let mut skipped = [0; PREFACE_BYTES];
    if reader.read_exact(&mut skipped).await.is_err() {
        return false;
    }
    loop {
        let mut head = [0; 9];
        if reader.read_exact(&mut head).await.is_err() {
            return false;
        }
        let [first, second, third, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, first, second, third]) as usize];
        if reader.read_exact(&mut payload).await.is_err() {
            return false;
        }
        if kind == HEADERS {
            return true;
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
