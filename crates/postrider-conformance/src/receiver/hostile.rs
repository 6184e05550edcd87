//! Receivers that misbehave, one constructor each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::Served;

/// A receiver that writes raw bytes, or none.
#[derive(Debug)]
pub struct Hostile {
    address: SocketAddr,
    counts: Arc<Counts>,
    _served: Option<Served>,
    _kept: Kept,
}

/// What must stay open for as long as the receiver is there.
#[derive(Debug, Default)]
struct Kept {
    _listener: Option<TcpListener>,
    _connections: Vec<TcpStream>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    accepted: AtomicUsize,
    ended: AtomicUsize,
    pub(super) sent: AtomicU64,
}

/// One accepted connection.
struct Victim {
    tcp: TcpStream,
    counts: Arc<Counts>,
}

impl Victim {
    /// Reads until the head of the request is there. What follows is left in the socket.
    async fn read_request(&mut self) {
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !seen.windows(4).any(|window| window == b"\r\n\r\n") {
            match self.tcp.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(count) => seen.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Writes, and says whether anyone is still there to read.
    async fn write(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self.tcp.write(bytes).await {
                Ok(0) | Err(_) => return false,
                Ok(count) => {
                    self.counts.sent.fetch_add(count as u64, Ordering::SeqCst);
                    bytes = &bytes[count..];
                }
            }
        }
        true
    }

    async fn write_forever(&mut self, bytes: &[u8]) {
        while self.write(bytes).await {}
    }

    /// Stays until the sender hangs up.
    async fn linger(&mut self) {
        let mut buffer = [0; 4096];
        while matches!(self.tcp.read(&mut buffer).await, Ok(count) if count > 0) {}
    }

    /// Lets the sender read what was written, to the end, and then ends.
    async fn finish(mut self) {
        let _ = self.tcp.shutdown().await;
        self.linger().await;
    }

    /// Ends with a reset: what is under way in both directions is lost.
    fn reset(self) {
        self.tcp.set_zero_linger().expect("a socket can be told not to linger");
    }
}

impl Hostile {
    async fn start<F, Fut>(behave: F) -> Self
    where
        F: Fn(Victim) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::listen(move |tcp, counts| behave(Victim { tcp, counts })).await
    }

    /// Accepts connections, and does this with each.
    pub(super) async fn listen<F, Fut>(behave: F) -> Self
    where
        F: Fn(TcpStream, Arc<Counts>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let served = Served::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((tcp, _)) = listener.accept().await else { continue };
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                let behaviour = behave(tcp, Arc::clone(&shared));
                let counts = Arc::clone(&shared);
                connections.spawn(async move {
                    behaviour.await;
                    counts.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, counts, _served: Some(served), _kept: Kept::default() }
    }

    /// Answers a request with these bytes, and closes.
    pub async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = Arc::new(bytes.into());
        Self::start(move |mut victim| {
            let bytes = Arc::clone(&bytes);
            async move {
                victim.read_request().await;
                victim.write(&bytes).await;
                victim.finish().await;
            }
        })
        .await
    }

    /// Writes these bytes before it was asked anything, waits for something to be sent, and closes.
    pub async fn greets(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = Arc::new(bytes.into());
        Self::start(move |mut victim| {
            let bytes = Arc::clone(&bytes);
            async move {
                victim.write(&bytes).await;
                let mut first = [0; 4096];
                let _ = victim.tcp.read(&mut first).await;
                victim.finish().await;
            }
        })
        .await
    }

    /// A port on which nothing listens.
    pub async fn refuses() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        Self { address, counts: Arc::default(), _served: None, _kept: Kept::default() }
    }

    /// A port on which connections are not even accepted: the queue of the listener is full, and stays so.
    pub async fn black_hole() -> Self {
        Self::black_hole_at("127.0.0.1:0".parse().expect("an address")).await
    }

    /// The same at a given address of loopback.
    pub async fn black_hole_at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(address).expect("loopback has this port free");
        let listener = socket.listen(1).expect("a bound socket can listen");
        let address = listener.local_addr().expect("a bound listener has an address");
        // A queue of one takes two, and drops what else comes.
        let mut connections = Vec::new();
        for _ in 0..2 {
            connections.push(TcpStream::connect(address).await.expect("there is room in the queue"));
        }
        let kept = Kept { _listener: Some(listener), _connections: connections };
        Self { address, counts: Arc::default(), _served: None, _kept: kept }
    }

    /// Accepts, reads, and says nothing. To a sender that speaks TLS it is a handshake that stalls.
    pub async fn says_nothing() -> Self {
        Self::start(|mut victim| async move { victim.linger().await }).await
    }

    /// Accepts, and never reads a byte.
    pub async fn reads_nothing() -> Self {
        Self::start(|victim| async move {
            std::future::pending::<()>().await;
            drop(victim);
        })
        .await
    }

    /// Accepts and resets the connection at once.
    pub async fn resets() -> Self {
        Self::start(|victim| async move { victim.reset() }).await
    }

    /// Reads the request and closes without a word.
    pub async fn closes_without_a_word() -> Self {
        Self::answering("").await
    }

    /// Sends the head of a response without end, one byte per `interval`.
    pub async fn drips_headers(interval: Duration) -> Self {
        Self::start(move |mut victim| async move {
            victim.read_request().await;
            if !victim.write(b"HTTP/1.1 200 OK\r\nX-Drip: ").await {
                return;
            }
            loop {
                tokio::time::sleep(interval).await;
                if !victim.write(b"x").await {
                    return;
                }
            }
        })
        .await
    }

    /// Sends a body without end, in chunks.
    pub async fn endless_body() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            let mut chunk = b"4000\r\n".to_vec();
            chunk.extend(vec![b'e'; 0x4000]);
            chunk.extend(b"\r\n");
            victim.write_forever(&chunk).await;
        })
        .await
    }

    /// Announces a body of ten gigabytes and starts to send it.
    pub async fn ten_gigabytes() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n").await;
            victim.write_forever(&vec![b'g'; 0x4000]).await;
        })
        .await
    }

    /// Sends a few bytes of a body, and then no more.
    pub async fn stalls_in_body() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first bytes").await;
            victim.linger().await;
        })
        .await
    }

    /// Announces a hundred bytes, sends fifteen, and closes.
    pub async fn breaks_off() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first bytes").await
    }

    /// Announces a hundred bytes, sends fifteen, and resets the connection.
    pub async fn resets_in_body() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe first bytes").await;
            victim.reset();
        })
        .await
    }

    /// Answers in another language.
    pub async fn garbage() -> Self {
        Self::answering("220 mail.example.test ESMTP ready, and who are you?\r\n\r\n").await
    }

    /// Answers with one header of a megabyte.
    pub async fn megabyte_header() -> Self {
        let mut answer = b"HTTP/1.1 200 OK\r\nX-Long: ".to_vec();
        answer.extend(vec![b'h'; 1024 * 1024]);
        answer.extend(b"\r\nContent-Length: 0\r\n\r\n");
        Self::answering(answer).await
    }

    /// Answers with headers without end.
    pub async fn endless_headers() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write(b"HTTP/1.1 200 OK\r\n").await;
            victim.write_forever(b"X-More: and more\r\n").await;
        })
        .await
    }

    /// Answers with interim responses without end.
    pub async fn interim_flood() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            victim.write_forever("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100).as_bytes()).await;
        })
        .await
    }

    /// Answers with both a `Content-Length` and a `Transfer-Encoding`.
    pub async fn two_lengths() -> Self {
        Self::answering(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        )
        .await
    }

    /// Answers each request with two responses in one piece, the first a 503 and the second a 200, and keeps the connection.
    pub async fn answers_twice() -> Self {
        Self::start(|mut victim| async move {
            victim.read_request().await;
            let twice = b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            victim.write(twice).await;
            victim.linger().await;
        })
        .await
    }

    /// Answers with a small body that would be `size` bytes of zeros, were it decompressed.
    ///
    /// A deflate stream that repeats one byte is itself repetitive, so it is written here by hand: a block with fixed codes,
    /// a literal zero, and copies of 258 bytes from a distance of one.
    pub async fn gzip_bomb(size: usize) -> Self {
        let body = bomb(size);
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend(body);
        Self::answering(answer).await
    }

    /// Answers the first request of each connection with 204, and then closes the connection without having said so.
    pub async fn closes_kept_connections() -> Self {
        Self::answering("HTTP/1.1 204 No Content\r\n\r\n").await
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Its URL for a sender that speaks TLS.
    pub fn tls_url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections it accepted.
    pub fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How many of them are over.
    pub fn ended(&self) -> usize {
        self.counts.ended.load(Ordering::SeqCst)
    }

    /// How many bytes the system took from it.
    pub fn bytes_sent(&self) -> u64 {
        self.counts.sent.load(Ordering::SeqCst)
    }
}

fn bomb(size: usize) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut bits = Bits::default();
    // The last block, with fixed codes.
    bits.push_low_first(1, 1);
    bits.push_low_first(1, 2);
    bits.push_high_first(0b0011_0000, 8);
    for _ in 0..size / 258 {
        bits.push_high_first(0b1100_0101, 8);
        bits.push_high_first(0, 5);
    }
    bits.push_high_first(0, 7);
    bytes.extend(bits.bytes);
    // Checksum and length stand at the end, where nobody who stops in time ever looks.
    bytes.extend([0; 8]);
    bytes
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    used: u8,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if bit && let Some(last) = self.bytes.last_mut() {
            *last |= 1 << self.used;
        }
        self.used = (self.used + 1) % 8;
    }

    fn push_low_first(&mut self, value: u32, count: u32) {
        for position in 0..count {
            self.push(value >> position & 1 == 1);
        }
    }

    fn push_high_first(&mut self, value: u32, count: u32) {
        for position in (0..count).rev() {
            self.push(value >> position & 1 == 1);
        }
    }
}
