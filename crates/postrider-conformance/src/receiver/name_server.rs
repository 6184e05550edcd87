//! A name server that says what a test wants it to say.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;

use super::Served;

const HEADER_BYTES: usize = 12;
const TYPE_A: u16 = 1;
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

type Script = Arc<dyn Fn(&str, Question, usize) -> Reply + Send + Sync>;
type Asked = Arc<Mutex<HashMap<(String, Question), usize>>>;

/// A name server on loopback, over UDP.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    asked: Asked,
    _served: Served,
}

impl NameServer {
    /// Says `reply` to everything.
    pub async fn replying(reply: Reply) -> Self {
        Self::start(move |_, _, _| reply.clone()).await
    }

    /// Replies by `script`, which gets the name in lower case without its final dot, the question, and how often this
    /// question has been asked for this name, counted from 1.
    pub async fn start(script: impl Fn(&str, Question, usize) -> Reply + Send + Sync + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let asked = Asked::default();
        let served = Served::spawn(serve(Arc::new(socket), Arc::new(script), Arc::clone(&asked)));
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

async fn serve(socket: Arc<UdpSocket>, script: Script, asked: Asked) {
    let mut buffer = [0; 1500];
    loop {
        let Ok((count, peer)) = socket.recv_from(&mut buffer).await else { continue };
        let Some(query) = Query::parse(&buffer[..count]) else { continue };
        let number = {
            let mut asked = asked.lock().expect("nothing panics while it holds the counts");
            let number = asked.entry((query.name.clone(), query.question.clone())).or_default();
            *number += 1;
            *number
        };
        let mut reply = script(&query.name, query.question.clone(), number);
        let socket = Arc::clone(&socket);
        // On its own, so that a slow reply holds up no other.
        tokio::spawn(async move {
            while let Reply::After(delay, next) = reply {
                tokio::time::sleep(delay).await;
                reply = *next;
            }
            if let Some(message) = query.answered(&reply) {
                let _ = socket.send_to(&message, peer).await;
            }
        });
    }
}

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

    fn answered(&self, reply: &Reply) -> Option<Vec<u8>> {
        let (code, addresses): (u8, &[IpAddr]) = match reply {
            Reply::Addresses(addresses) => (0, addresses),
            Reply::Failure => (2, &[]),
            Reply::NoSuchName => (3, &[]),
            Reply::Refused => (5, &[]),
            Reply::Silence | Reply::After(..) => return None,
        };
        let wanted: Vec<&IpAddr> = addresses
            .iter()
            .filter(|address| match self.question {
                Question::A => address.is_ipv4(),
                Question::Aaaa => address.is_ipv6(),
                Question::Other(_) => false,
            })
            .collect();
        let mut message = self.id.to_vec();
        // A response, recursion desired and available.
        message.extend([0x81, 0x80 | code]);
        message.extend([0, 1]);
        message.extend(u16::try_from(wanted.len()).expect("a script has few addresses").to_be_bytes());
        message.extend([0; 4]);
        message.extend(&self.raw);
        for address in wanted {
            // The name is the question's; the class is the Internet; the time to live is zero.
            message.extend([0xc0, 0x0c]);
            let (kind, bytes) = match address {
                IpAddr::V4(address) => (TYPE_A, address.octets().to_vec()),
                IpAddr::V6(address) => (TYPE_AAAA, address.octets().to_vec()),
            };
            message.extend(kind.to_be_bytes());
            message.extend([0, 1, 0, 0, 0, 0]);
            message.extend(u16::try_from(bytes.len()).expect("an address is short").to_be_bytes());
            message.extend(bytes);
        }
        Some(message)
    }
}
