//! A receiver that answers nothing until it is told to: what it holds, it holds for certain, and for as long as needed.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use crate::support::DEADLINE;

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) delivery: String,
    pub(crate) event: String,
    pub(crate) at: Instant,
}

/// What to answer to a request for a delivery that was asked for so many times before.
type Answer = fn(earlier: usize) -> u16;

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    /// How often a delivery may have been asked for before, for a request to be answered.
    open: usize,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    answer: Answer,
}

/// The receiver.
pub(crate) struct Gate {
    shared: Arc<Shared>,
    pub(crate) url: String,
}

impl Gate {
    /// Closed at first, and answering 200 to everything when it is opened.
    pub(crate) fn closed() -> Self {
        Self::answering(|_| 200)
    }

    /// The same, with answers of the test's own.
    pub(crate) fn answering(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), answer });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                // How a connection ends is the sender's affair: some senders of these tests are killed.
                std::thread::spawn(move || serve(stream, &shared).unwrap_or_default());
            }
        });
        Self { shared, url }
    }

    /// Answers what is held, and everything that comes later at once.
    pub(crate) fn open(&self) {
        self.open_for(usize::MAX);
    }

    /// The same, but only for the first so many requests of each delivery.
    pub(crate) fn open_for(&self, first: usize) {
        self.shared.state.lock().unwrap().open = first;
        self.shared.changed.notify_all();
    }

    /// Waits for so many requests in all, and returns those that there are.
    #[track_caller]
    pub(crate) fn holds(&self, count: usize) -> Vec<Request> {
        let deadline = Instant::now() + DEADLINE;
        let mut state = self.shared.state.lock().unwrap();
        while state.requests.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {count} requests arrived", state.requests.len());
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
        state.requests.clone()
    }

    /// Every request by now.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(request) = read(&mut reader)? {
        let status = shared.hold(request);
        write!(writer, "HTTP/1.1 {status} Answered\r\ncontent-length: 0\r\n\r\n")?;
    }
    Ok(())
}

fn read(reader: &mut impl std::io::BufRead) -> std::io::Result<Option<Request>> {
    let mut request = Request { delivery: String::new(), event: String::new(), at: Instant::now() };
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(": ") {
            Some(("postrider-delivery-id", id)) => id.clone_into(&mut request.delivery),
            Some(("webhook-id", id)) => id.clone_into(&mut request.event),
            Some(("content-length", text)) => length = text.parse().unwrap(),
            None if line.trim_end().is_empty() => break,
            _ => {}
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    request.at = Instant::now();
    Ok(Some(request))
}

impl Shared {
    fn hold(&self, request: Request) -> u16 {
        let mut state = self.state.lock().unwrap();
        let earlier = state.requests.iter().filter(|other| other.delivery == request.delivery).count();
        state.requests.push(request);
        self.changed.notify_all();
        while earlier >= state.open {
            state = self.changed.wait(state).unwrap();
        }
        (self.answer)(earlier)
    }
}
