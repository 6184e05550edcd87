//! Receivers on loopback: an honest one that can be programmed, and many that misbehave.
//!
//! They are real servers on real sockets, because what is tested is what a sender does with a real socket. Everything ends
//! when the value is dropped.
//!
//! - [`Receiver`] speaks HTTP/1.1, and HTTP/2 under TLS if told to. It keeps every request, and answers as its script says.
//! - [`Hostile`] writes bytes that no HTTP library would, or none; in HTTP/2 by one [`Http2Attack`] or another.
//! - [`NameServer`] answers questions for addresses as its script says, and can change its mind.
//! - [`Authority`] signs certificates, good and bad.

mod hostile;
mod hostile_http2;
mod http;
mod name_server;
mod tls;

pub use hostile::Hostile;
pub use hostile_http2::Http2Attack;
pub use http::{Answer, Gate, Received, Receiver};
pub use name_server::{NameServer, Question, Reply};
pub use tls::{Authority, Identity};

/// A task that ends with the value that holds it.
#[derive(Debug)]
struct Served(tokio::task::JoinHandle<()>);

impl Served {
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.abort();
    }
}
