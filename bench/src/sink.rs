//! The receiver of the benchmarks: answers 200 to every request as cheaply as it can, and counts.
//!
//! It is a process of its own, so that its work is not mistaken for the sender's, and it is no HTTP library, so that its
//! share of the machine stays small: it looks for the end of the head and for the content's length, and nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::{env, io, thread};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Serves until its standard input closes, that is until whoever started it is gone.
pub(crate) fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut chunk = vec![0_u8; 64 * 1024];
    loop {
        while let Some(end) = request_end(&buffer) {
            buffer.drain(..end);
            stream.write_all(ANSWER)?;
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => buffer.extend_from_slice(&chunk[..count]),
        }
    }
}

fn request_end(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let end = head + length.unwrap_or(0);
    (buffer.len() >= end).then_some(end)
}

/// A sink that runs beside us.
pub(crate) struct Sink {
    child: Child,
    pub(crate) url: String,
}

impl Sink {
    pub(crate) fn start() -> io::Result<Self> {
        let mut child =
            Command::new(env::current_exe()?).arg("sink").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut address)?;
        Ok(Self { child, url: format!("http://{}/", address.trim()) })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
