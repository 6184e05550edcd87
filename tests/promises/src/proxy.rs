//! What lies between a process and its Postgres, and can fail there.
//!
//! It carries connections to a server on loopback, slowly if told to, and can stop carrying them, cut them, or lose an
//! answer. For the last it understands just enough of the protocol: a client names a statement once and uses its name
//! later, a server says `ReadyForQuery` when a statement's transaction is over. So what is lost is an answer, never
//! what it answers to. What goes over it is counted (see [`counter`](crate::counter)).

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::counter::{Counts, Session};

/// A client asks with these whether the server encrypts. They come instead of a first message.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];

/// Nothing that is sent here is larger.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The wire. Everything that goes over it is cut when the value is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    to: u16,
    state: Mutex<State>,
    /// Counts what happened to all connections that were open then.
    cuts: watch::Sender<u32>,
    silences: watch::Sender<u32>,
    /// While it is true nothing passes, also not over new connections.
    held_up: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    latency: Duration,
    /// Whose answers get lost, and how many of them still are to be.
    lossy: Option<(String, usize)>,
    lost: usize,
    accepted: usize,
    counts: Counts,
}

impl Proxy {
    /// A wire to a server on this port of loopback.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own_port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: port,
            state: Mutex::default(),
            cuts: watch::Sender::new(0),
            silences: watch::Sender::new(0),
            held_up: watch::Sender::new(false),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port: own_port, shared, accepting }
    }

    /// The port at this end.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, by way of this wire.
    pub fn url_of(&self, url: &str) -> String {
        let (front, path) = url.rsplit_once('/').expect("a database is named by a path");
        let (front, _) = front.rsplit_once(':').expect("a server is named by a port");
        let (account, _) = front.rsplit_once('@').expect("a server is used by an account");
        format!("{account}@127.0.0.1:{}/{path}", self.port)
    }

    /// From now on everything takes this long, each way.
    pub fn delay(&self, each_way: Duration) {
        self.shared.state().latency = each_way;
    }

    /// Closes all connections. New ones work.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Nothing passes any more over the connections that are open now, and nobody is told: both ends stay open. New ones
    /// work.
    pub fn silence(&self) {
        self.shared.silences.send_modify(|count| *count += 1);
    }

    /// Nothing passes, also not over new connections, which are accepted; or everything passes again.
    pub fn hold_up(&self, held_up: bool) {
        self.shared.held_up.send_replace(held_up);
    }

    /// The answers to the next so many statements that begin with `text` get lost: the server does what they say, and then
    /// the connection is closed before it can tell.
    pub fn lose_answers_to(&self, text: &str, count: usize) {
        self.shared.state().lossy = Some((text.to_owned(), count));
    }

    /// How many answers were lost by now.
    pub fn lost(&self) -> usize {
        self.shared.state().lost
    }

    /// How many connections were accepted by now.
    pub fn accepted(&self) -> usize {
        self.shared.state().accepted
    }

    /// What has gone over it by now.
    pub fn counts(&self) -> Counts {
        self.shared.state().counts.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }

    /// Whether the answer to this statement is to get lost, which it then is.
    fn loses_answer_to(&self, statement: &str) -> bool {
        match &mut self.state().lossy {
            Some((text, left)) if *left > 0 && statement.starts_with(&**text) => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { continue };
        shared.state().accepted += 1;
        // From here on, so that whoever connects before a cut is cut by it.
        let (cuts, silences) = (shared.cuts.subscribe(), shared.silences.subscribe());
        tokio::spawn(connection(near, Arc::clone(&shared), cuts, silences));
    }
}

async fn connection(
    mut near: TcpStream,
    shared: Arc<Shared>,
    mut cuts: watch::Receiver<u32>,
    mut silences: watch::Receiver<u32>,
) {
    // A server that is not there: the client finds its connection closed.
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", shared.to)).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    tokio::select! {
        _ = carry(&mut near, &mut far, &shared) => {}
        _ = cuts.changed() => {}
        _ = silences.changed() => {
            let _ = cuts.changed().await;
        }
    }
}

/// A statement whose answer is to get lost has been passed on.
type Doomed = watch::Sender<bool>;

async fn carry(near: &mut TcpStream, far: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let (mut from_client, mut to_client) = near.split();
    let (from_server, mut to_server) = far.split();
    if !open(&mut from_client, &mut to_client, &mut to_server, shared).await? {
        return Ok(());
    }
    let doomed = Doomed::new(false);
    tokio::select! {
        result = requests(from_client, to_server, shared, &doomed) => result,
        result = answers(from_server, to_client, shared, &doomed) => result,
    }
}

/// Passes the first message on, which has no kind. False when the client goes away instead.
async fn open(
    from_client: &mut ReadHalf<'_>,
    to_client: &mut WriteHalf<'_>,
    to_server: &mut WriteHalf<'_>,
    shared: &Shared,
) -> io::Result<bool> {
    loop {
        let Ok(length) = from_client.read_u32().await else { return Ok(false) };
        let mut rest = vec![0; body_length(length)?];
        from_client.read_exact(&mut rest).await?;
        pass(shared).await;
        let code = rest.first_chunk().map(|code| u32::from_be_bytes(*code));
        if code.is_some_and(|code| ENCRYPTION_REQUESTS.contains(&code)) {
            to_client.write_all(b"N").await?;
            continue;
        }
        to_server.write_all(&[&length.to_be_bytes()[..], &rest].concat()).await?;
        return Ok(true);
    }
}

fn body_length(length: u32) -> io::Result<usize> {
    let body = (length as usize).checked_sub(4).filter(|body| *body <= MOST_BYTES);
    body.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not the protocol of Postgres"))
}

/// Waits while everything is held up.
async fn pass(shared: &Shared) {
    let mut held_up = shared.held_up.subscribe();
    let _ = held_up.wait_for(|held_up| !held_up).await;
}

struct Message {
    kind: u8,
    body: Vec<u8>,
}

impl Message {
    async fn read(from: &mut ReadHalf<'_>) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        let mut body = vec![0; body_length(from.read_u32().await?)?];
        from.read_exact(&mut body).await?;
        Ok(Self { kind, body })
    }

    fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.body.len() + 4).expect("a message that was read has a length");
        [&[self.kind][..], &length.to_be_bytes(), &self.body].concat()
    }

    /// The texts that it begins with.
    fn texts(&self) -> impl Iterator<Item = String> {
        self.body.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned())
    }
}

/// Carries what a client asks, and notices statements whose answers are to get lost.
async fn requests(mut from: ReadHalf<'_>, to: WriteHalf<'_>, shared: &Shared, doomed: &Doomed) -> io::Result<()> {
    let (queue, queued) = mpsc::unbounded_channel();
    let read = async move {
        let mut statements = HashMap::new();
        while let Ok(message) = Message::read(&mut from).await {
            let mut texts = message.texts();
            let statement = match message.kind {
                // Parse: a name, and a statement to remember by it.
                b'P' => {
                    let name = texts.next().unwrap_or_default();
                    statements.insert(name, texts.next().unwrap_or_default());
                    None
                }
                // Bind: a portal, and the name of the statement that is to be carried out.
                b'B' => texts.nth(1).and_then(|name| statements.get(&name).cloned()),
                // Query: a statement that is carried out at once.
                b'Q' => texts.next(),
                _ => None,
            };
            let bytes = message.bytes();
            shared.state().counts.asked(message.kind, bytes.len(), statement.as_deref());
            if statement.is_some_and(|statement| shared.loses_answer_to(&statement)) {
                doomed.send_replace(true);
            }
            let _ = queue.send((Instant::now() + shared.state().latency, bytes));
        }
        Ok(())
    };
    tokio::try_join!(read, deliver(queued, to, shared)).map(|_| ())
}

/// Carries what a server says, unless it is to get lost.
async fn answers(mut from: ReadHalf<'_>, to: WriteHalf<'_>, shared: &Shared, doomed: &Doomed) -> io::Result<()> {
    let (queue, queued) = mpsc::unbounded_channel();
    // The last words of a server that closes the connection are delivered as well.
    let read = async move {
        let mut session = Session::default();
        while let Ok(message) = Message::read(&mut from).await {
            let bytes = message.bytes();
            shared.state().counts.answered(message.kind, &message.body, bytes.len(), &mut session);
            if !*doomed.borrow() {
                let _ = queue.send((Instant::now() + shared.state().latency, bytes));
            } else if message.kind == b'Z' {
                // ReadyForQuery: the statement's transaction is over.
                shared.state().lost += 1;
                break;
            }
        }
        Ok(())
    };
    tokio::try_join!(read, deliver(queued, to, shared)).map(|_| ())
}

/// Writes what is queued, each when its time has come.
async fn deliver(
    mut queued: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    mut to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    while let Some((at, bytes)) = queued.recv().await {
        tokio::time::sleep_until(at).await;
        pass(shared).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}
