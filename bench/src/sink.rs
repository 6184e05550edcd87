//! The receiver of the benchmarks: answers 200 to every request as cheaply as it can, and writes down what came when.
//!
//! It is a process of its own, so that its work is not mistaken for the sender's, and it is no HTTP library, so that its
//! share of the machine stays small: it looks for the end of the head, the content's length and the delivery's id, and for
//! nothing else. One process listens on many ports, each of which is a destination of its own to the sender.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, io, thread};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{Failure, tls};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// What has come: the text of an id, and nanoseconds since 1970.
type Page = Arc<Mutex<Vec<(String, u64)>>>;

/// How it receives.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Receivers {
    /// On so many ports.
    #[arg(long = "ports")]
    pub(crate) destinations: usize,
    /// With TLS; whom to trust is written to this file.
    #[arg(long)]
    pub(crate) authority: Option<PathBuf>,
    /// Each request is answered after so many milliseconds.
    #[arg(long, default_value_t = 0)]
    pub(crate) answer_after: u64,
}

impl Receivers {
    /// So many that answer at once, without TLS.
    pub(crate) fn new(destinations: usize) -> Self {
        Self { destinations, ..Self::default() }
    }
}

/// What all connections have in common.
#[derive(Clone)]
struct Desk {
    tls: Option<TlsAcceptor>,
    answer_after: Option<Duration>,
    page: Page,
}

/// Listens, and tells the numbers of its ports. Then each line on standard input asks for what has come since the
/// last one; the end of input ends it.
///
/// One thread serves all connections: with a thread for each, waking them up would cost more than answering.
pub(crate) fn serve(receivers: &Receivers) -> Result<(), Failure> {
    let tls = receivers.authority.as_deref().map(tls::server).transpose()?.map(TlsAcceptor::from);
    let answer_after = (receivers.answer_after > 0).then(|| Duration::from_millis(receivers.answer_after));
    let page = Page::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut numbers = Vec::with_capacity(receivers.destinations);
    for _ in 0..receivers.destinations {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        numbers.push(listener.local_addr()?.port().to_string());
        runtime.spawn(listen(listener, Desk { tls: tls.clone(), answer_after, page: Arc::clone(&page) }));
    }
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    let mut out = io::stdout().lock();
    writeln!(out, "{}", numbers.join(" "))?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        let mut seen = page.lock().expect("nobody panics with it");
        if line? == "count" {
            let count = seen.len();
            drop(seen);
            writeln!(out, "{count}")?;
        } else {
            let seen = std::mem::take(&mut *seen);
            for (id, at) in seen {
                writeln!(out, "{id} {at}")?;
            }
            writeln!(out)?;
        }
        out.flush()?;
    }
    Ok(())
}

async fn listen(listener: TcpListener, desk: Desk) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, desk.clone()));
    }
}

async fn converse(stream: TcpStream, desk: Desk) -> io::Result<()> {
    stream.set_nodelay(true)?;
    match &desk.tls {
        None => answer(stream, &desk).await,
        Some(tls) => answer(tls.accept(stream).await?, &desk).await,
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, desk: &Desk) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(16 * 1024);
    loop {
        while let Some((end, id)) = request(&buffer) {
            desk.page.lock().expect("nobody panics with it").push((id, now()));
            buffer.drain(..end);
            if let Some(answer_after) = desk.answer_after {
                tokio::time::sleep(answer_after).await;
            }
            stream.write_all(ANSWER).await?;
            stream.flush().await?;
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Where the first request ends, if all of it is there, and its delivery's id.
fn request(buffer: &[u8]) -> Option<(usize, String)> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let (mut length, mut id) = (0, "");
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        } else if name.eq_ignore_ascii_case("postrider-delivery-id") {
            id = value.trim();
        }
    }
    let end = head + length;
    (buffer.len() >= end).then(|| (end, id.to_owned()))
}

/// Nanoseconds since 1970, which all processes of one machine count alike.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A sink that runs beside us.
pub(crate) struct Sink {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    pub(crate) urls: Vec<String>,
}

/// What arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// When each delivery came first, in nanoseconds since 1970.
    pub(crate) first: HashMap<String, u64>,
    /// How many requests were for a delivery that had come before.
    pub(crate) repeated: usize,
}

impl Arrivals {
    /// Those that came later.
    pub(crate) fn add(&mut self, later: Self) {
        self.repeated += later.repeated;
        for (id, at) in later.first {
            self.see(id, at);
        }
    }

    fn see(&mut self, id: String, at: u64) {
        match self.first.entry(id) {
            Entry::Occupied(mut seen) => {
                self.repeated += 1;
                *seen.get_mut() = at.min(*seen.get());
            }
            Entry::Vacant(free) => {
                free.insert(at);
            }
        }
    }

    /// From the first to the last of them.
    pub(crate) fn span(&self) -> Duration {
        let (first, last) = (self.first.values().min(), self.first.values().max());
        Duration::from_nanos(last.zip(first).map_or(0, |(last, first)| last - first))
    }
}

impl Sink {
    pub(crate) fn start(receivers: &Receivers) -> io::Result<Self> {
        let Receivers { destinations, authority, answer_after } = receivers;
        let mut command = Command::new(env::current_exe()?);
        command.args(["sink", "--ports", &destinations.to_string(), "--answer-after", &answer_after.to_string()]);
        if let Some(file) = authority {
            command.arg("--authority").arg(file);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        let mut ports = String::new();
        output.read_line(&mut ports)?;
        let scheme = if authority.is_some() { "https" } else { "http" };
        let urls = ports.split_whitespace().map(|port| format!("{scheme}://127.0.0.1:{port}/")).collect();
        Ok(Self { child, input, output, urls })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&mut self, what: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{what}")?;
        input.flush()
    }

    /// How many requests have come since the last `take`.
    pub(crate) fn count(&mut self) -> io::Result<usize> {
        self.ask("count")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// What has come since the last time.
    pub(crate) fn take(&mut self) -> io::Result<Arrivals> {
        self.ask("take")?;
        let mut arrivals = Arrivals::default();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line)?;
            let Some((id, at)) = line.trim().split_once(' ') else { return Ok(arrivals) };
            let at: u64 = at.parse().map_err(|_| io::ErrorKind::InvalidData)?;
            arrivals.see(id.to_owned(), at);
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_complete_with_its_last_byte() {
        let text = b"POST / HTTP/1.1\r\nContent-Length: 3\r\nPostrider-Delivery-Id: dlv_1\r\n\r\nabcPOST";
        let end = text.len() - "POST".len();
        assert_eq!(request(text), Some((end, "dlv_1".to_owned())));
        assert_eq!(request(&text[..end]), Some((end, "dlv_1".to_owned())));
        assert_eq!(request(&text[..end - 1]), None);
        assert_eq!(request(b"POST / HTTP/1.1\r\n"), None);
    }

    #[test]
    fn what_comes_again_is_counted_and_the_first_time_stays() {
        let mut arrivals = Arrivals::default();
        arrivals.see("a".to_owned(), 20);
        arrivals.see("b".to_owned(), 50);
        let mut later = Arrivals::default();
        later.see("a".to_owned(), 90);
        arrivals.add(later);
        assert_eq!((arrivals.repeated, arrivals.first.len(), arrivals.first["a"]), (1, 2, 20));
        assert_eq!(arrivals.span(), Duration::from_nanos(30));
    }
}
