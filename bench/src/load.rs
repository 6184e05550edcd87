//! Posts events to the HTTP API over many connections, each of which sends one after the other, as fast as it is answered.
//!
//! Like the sink it is a process of its own and no HTTP library.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::usage::Usage;

/// What to post, and where.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    /// `127.0.0.1:8400`
    #[arg(long)]
    pub(crate) address: String,
    #[arg(long)]
    pub(crate) key: String,
    #[arg(long)]
    pub(crate) connections: usize,
    #[arg(long)]
    pub(crate) events: usize,
    /// Where the events go, in turn.
    #[arg(long, value_delimiter = ',')]
    pub(crate) urls: Vec<String>,
}

/// Runs it, and prints the median and the 99th percentile of the answers in microseconds, and what it cost itself:
/// processor time in milliseconds and memory in kilobytes.
pub(crate) fn run(load: Load) -> io::Result<()> {
    let (load, next, times) = (Arc::new(load), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let posters: Vec<_> = (0..load.connections)
        .map(|_| {
            let (load, next, times) = (Arc::clone(&load), Arc::clone(&next), Arc::clone(&times));
            thread::spawn(move || {
                let mine = post(&load, &next)?;
                times.lock().expect("nobody panics with it").extend(mine);
                io::Result::Ok(())
            })
        })
        .collect();
    for poster in posters {
        poster.join().map_err(|_| io::Error::other("a poster panicked"))??;
    }
    let mut times = times.lock().expect("nobody panics with it");
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_micros();
    let Usage { cpu_seconds, peak_bytes } = Usage::of(std::process::id())?;
    writeln!(io::stdout(), "{} {} {:.0} {}", at(50), at(99), cpu_seconds * 1e3, peak_bytes / 1024)
}

fn post(load: &Load, next: &AtomicUsize) -> io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(&load.address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let text = "x".repeat(989);
    let mut times = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= load.events {
            return Ok(times);
        }
        let url = &load.urls[number % load.urls.len()];
        let body = format!(
            "{{\"type\":\"bench.event\",\"destination_url\":\"{url}\",\"payload\":{{\"number\":{number},\"text\":\"{text}\"}}}}"
        );
        let request = format!(
            "POST /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            load.address,
            load.key,
            body.len()
        );
        let sent_at = Instant::now();
        stream.write_all(request.as_bytes())?;
        let status = answer(&mut answers)?;
        times.push(sent_at.elapsed());
        if !status.contains(" 202 ") {
            return Err(io::Error::other(format!("the server answered {status}")));
        }
    }
}

/// Reads one answer, and returns its first line.
fn answer(answers: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut status = String::new();
    answers.read_line(&mut status)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
    }
    let mut body = vec![0; length];
    answers.read_exact(&mut body)?;
    Ok(status)
}
