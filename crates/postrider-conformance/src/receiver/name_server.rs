//! A name server that says what a test wants it to say.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::Served;

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Something else, by its number.
    Other(u16),
}

/// What is said.
#[derive(Debug, Clone)]
pub enum Reply {
    /// These addresses, of which those that were asked for are given; none for the rest of the questions. To be forgotten at
    /// once.
    Addresses(Vec<IpAddr>),
    /// The name is another name for this one, which has these addresses; if there are none, it must be asked for.
    Alias(String, Vec<IpAddr>),
    /// Too long for one datagram: the reply must be asked for again over TCP.
    OverTcp(Box<Reply>),
    /// Some addresses, after a reply under a number that nobody waits for.
    AfterLie {
        /// What the reply that does not count says.
        lie: IpAddr,
        /// What the one that counts says. There is none if this is empty.
        truth: Vec<IpAddr>,
    },
    /// These addresses, for a name that nobody asked for.
    ToAnotherQuestion(Vec<IpAddr>),
    /// A reply that says it has so many records, and has one.
    Overstated(u16, IpAddr),
    /// There is no such name.
    NoSuchName,
    /// The server is broken.
    Failure,
    /// The server does not want to.
    Refused,
    /// Nothing at all.
    Silence,
    /// Something, later.
    After(Duration, Box<Reply>),
}

impl Reply {
    /// The address of loopback.
    pub fn loopback() -> Self {
        Self::address("127.0.0.1")
    }

    /// One address.
    pub fn address(text: &str) -> Self {
        Self::addresses(&[text])
    }

    /// Some addresses.
    pub fn addresses(texts: &[&str]) -> Self {
        Self::Addresses(texts.iter().map(|text| text.parse().expect("a script's addresses are valid")).collect())
    }
}

type Script = Box<dyn Fn(&str, Question, usize) -> Reply + Send + Sync>;
type Asked = Arc<Mutex<HashMap<(String, Question), usize>>>;

/// A name server on loopback, over UDP and TCP.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    asked: Asked,
    _served: [Served; 2],
}

impl NameServer {
    /// Says `reply` to everything.
    pub async fn replying(reply: Reply) -> Self {
        Self::start(move |_, _, _| reply.clone()).await
    }

    /// Replies by `script`, which gets the name in lower case without its final dot, the question, and how often this
    /// question has been asked for this name, counted from 1.
    pub async fn start(script: impl Fn(&str, Question, usize) -> Reply + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("a bound socket has an address");
        let asked = Asked::default();
        let shared = Arc::new(Shared { script: Box::new(script), asked: Arc::clone(&asked) });
        let served = [
            Served::spawn(serve_datagrams(Arc::new(udp), Arc::clone(&shared))),
            Served::spawn(serve_connections(tcp, shared)),
        ];
        Self { address, asked, _served: served }
    }

    /// Where to ask.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How often it was asked for the IPv4 addresses of `name`.
    pub fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock().expect("nothing panics while it holds the counts");
        asked.get(&(name.to_owned(), Question::A)).copied().unwrap_or_default()
    }
}

struct Shared {
    script: Script,
    asked: Asked,
}

impl Shared {
    /// What to say to this, once it is time to say it.
    async fn reply(&self, query: &Query) -> Reply {
        let number = {
            let mut asked = self.asked.lock().expect("nothing panics while it holds the counts");
            let number = asked.entry((query.name.clone(), query.question.clone())).or_default();
            *number += 1;
            *number
        };
        let mut reply = (self.script)(&query.name, query.question.clone(), number);
        while let Reply::After(delay, next) = reply {
            tokio::time::sleep(delay).await;
            reply = *next;
        }
        reply
    }
}

/// One port for both: whoever is told to ask again does so at the same one.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = udp.local_addr().expect("a bound socket has an address");
        if let Ok(tcp) = TcpListener::bind(address).await {
            return (udp, tcp);
        }
    }
    panic!("no port of loopback is free for both UDP and TCP");
}

async fn serve_datagrams(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut buffer = [0; 1500];
    loop {
        let Ok((count, peer)) = socket.recv_from(&mut buffer).await else { continue };
        let Some(query) = Query::parse(&buffer[..count]) else { continue };
        let (socket, shared) = (Arc::clone(&socket), Arc::clone(&shared));
        // On its own, so that a slow reply holds up no other.
        tokio::spawn(async move {
            let messages = match shared.reply(&query).await {
                Reply::OverTcp(_) => vec![query.truncated()],
                reply => query.answered(&reply),
            };
            for message in messages {
                let _ = socket.send_to(&message, peer).await;
            }
        });
    }
}

async fn serve_connections(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        // How a connection ends is the resolver's business.
        tokio::spawn(async move { serve_connection(tcp, &shared).await.unwrap_or_default() });
    }
}

async fn serve_connection(tcp: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let (mut reader, writer) = tcp.into_split();
    let writer = Arc::new(tokio::sync::Mutex::new(writer));
    loop {
        let mut message = vec![0; usize::from(reader.read_u16().await?)];
        reader.read_exact(&mut message).await?;
        let Some(query) = Query::parse(&message) else { return Ok(()) };
        let (writer, shared) = (Arc::clone(&writer), Arc::clone(shared));
        // On its own, as with datagrams: a resolver asks many questions over one connection.
        tokio::spawn(async move {
            let reply = match shared.reply(&query).await {
                Reply::OverTcp(reply) => *reply,
                reply => reply,
            };
            for message in query.answered(&reply) {
                let length = u16::try_from(message.len()).expect("a message has at most 65,535 bytes");
                let mut writer = writer.lock().await;
                if writer.write_u16(length).await.is_err() || writer.write_all(&message).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[derive(Clone)]
struct Query {
    id: [u8; 2],
    name: String,
    question: Question,
    /// The question as it was asked, to be repeated in the reply.
    raw: Vec<u8>,
}

impl Query {
    fn parse(message: &[u8]) -> Option<Self> {
        let mut labels = Vec::new();
        let mut at = HEADER_BYTES;
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(std::str::from_utf8(message.get(at..at + length)?).ok()?.to_ascii_lowercase());
            at += length;
        }
        let question = match u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?) {
            TYPE_A => Question::A,
            TYPE_AAAA => Question::Aaaa,
            other => Question::Other(other),
        };
        let raw = message.get(HEADER_BYTES..at + 4)?.to_vec();
        Some(Self { id: [message[0], message[1]], name: labels.join("."), question, raw })
    }

    fn truncated(&self) -> Vec<u8> {
        let mut message = self.message(0, 0, &[]);
        message[2] |= 2;
        message
    }

    /// The messages of a reply, in their order.
    fn answered(&self, reply: &Reply) -> Vec<Vec<u8>> {
        match reply {
            Reply::Addresses(addresses) => vec![self.with_addresses(addresses)],
            Reply::Alias(target, addresses) => {
                let target = encoded(target);
                let mut records = vec![record(&[0xc0, 0x0c], TYPE_CNAME, &target)];
                records.extend(self.wanted(addresses).map(|address| address_record(&target, address)));
                vec![self.message(0, records.len(), &records.concat())]
            }
            Reply::AfterLie { lie, truth } => {
                let other = Self { id: [self.id[0] ^ 0x55, self.id[1] ^ 0xaa], ..self.clone() };
                let mut messages = vec![other.with_addresses(&[*lie])];
                messages.extend((!truth.is_empty()).then(|| self.with_addresses(truth)));
                messages
            }
            Reply::ToAnotherQuestion(addresses) => {
                let kind_and_class = self.raw[self.raw.len() - 4..].to_vec();
                let raw = [encoded("another.example.com"), kind_and_class].concat();
                vec![Self { raw, ..self.clone() }.with_addresses(addresses)]
            }
            Reply::Overstated(count, address) => {
                let record = self.wanted(&[*address]).map(|address| address_record(&[0xc0, 0x0c], address)).next();
                vec![self.message(0, usize::from(*count), &record.unwrap_or_default())]
            }
            Reply::Failure => vec![self.message(2, 0, &[])],
            Reply::NoSuchName => vec![self.message(3, 0, &[])],
            Reply::Refused => vec![self.message(5, 0, &[])],
            Reply::Silence | Reply::After(..) | Reply::OverTcp(_) => Vec::new(),
        }
    }

    fn with_addresses(&self, addresses: &[IpAddr]) -> Vec<u8> {
        let records: Vec<_> = self.wanted(addresses).map(|address| address_record(&[0xc0, 0x0c], address)).collect();
        self.message(0, records.len(), &records.concat())
    }

    /// Those of the addresses that were asked for.
    fn wanted<'a>(&self, addresses: &'a [IpAddr]) -> impl Iterator<Item = &'a IpAddr> {
        let question = self.question.clone();
        addresses.iter().filter(move |address| match question {
            Question::A => address.is_ipv4(),
            Question::Aaaa => address.is_ipv6(),
            Question::Other(_) => false,
        })
    }

    fn message(&self, code: u8, records: usize, answer: &[u8]) -> Vec<u8> {
        let mut message = self.id.to_vec();
        // A response, recursion desired and available.
        message.extend([0x81, 0x80 | code]);
        message.extend([0, 1]);
        message.extend(u16::try_from(records).expect("a message has at most 65,535 records").to_be_bytes());
        message.extend([0; 4]);
        message.extend(&self.raw);
        message.extend(answer);
        message
    }
}

fn address_record(name: &[u8], address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => record(name, TYPE_A, &address.octets()),
        IpAddr::V6(address) => record(name, TYPE_AAAA, &address.octets()),
    }
}

/// The class is the Internet; the time to live is zero.
fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut record = name.to_vec();
    record.extend(kind.to_be_bytes());
    record.extend([0, 1, 0, 0, 0, 0]);
    record.extend(u16::try_from(data.len()).expect("an address or a name is short").to_be_bytes());
    record.extend(data);
    record
}

/// A name as it stands in messages, to its end.
fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
