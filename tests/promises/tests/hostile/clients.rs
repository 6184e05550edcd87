//! Clients of the API that mean harm.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider_conformance::wait::eventually;
use postrider_promises::memory;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::stage::{LEEWAY, Served, alone, measured};

const SLOW: usize = 1_000;
const LOUD: usize = 40;
const FOR: Duration = Duration::from_secs(3);
const MOST: u64 = 200 << 20;
const LIMIT: u64 = 320 << 20;

const JSON: &str = "POST /v1/events HTTP/1.1\r\nhost: postrider\r\ncontent-type: application/json\r\n";

/// How many connections have been answered or closed by the server.
type Ended = Arc<AtomicUsize>;

/// Sends the beginning, and then a piece after each pause, until the server hangs up.
async fn client(address: SocketAddr, beginning: String, piece: Vec<u8>, pause: Option<Duration>, ended: Ended) {
    let Ok(mut tcp) = TcpStream::connect(address).await else { return };
    let _ = tcp.write_all(beginning.as_bytes()).await;
    let (mut reader, mut writer) = tcp.split();
    let mut answer = [0; 1_024];
    let talking = async {
        while writer.write_all(&piece).await.is_ok() {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
            }
        }
    };
    let listening = async { while matches!(reader.read(&mut answer).await, Ok(count) if count > 0) {} };
    tokio::select! {
        () = talking => {}
        () = listening => {}
    }
    ended.fetch_add(1, Ordering::SeqCst);
}

/// P16: bodies and heads without end, and a thousand connections that drip, while somebody honest is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_server_stays_small_whatever_clients_send() {
    let _machine = alone().await;
    let workplace = Workplace::on_sqlite();
    let arguments = ["serve", "--dev", "--listen", "127.0.0.1:0", "--json", "--request-timeout", "5s", "--no-dispatch"];
    let running = Running::start(memory::limited(&workplace.command(arguments), LIMIT));
    let served = Served::started(running, workplace).await;
    let address: SocketAddr = served.url.strip_prefix("http://").unwrap().parse().unwrap();

    let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
    let loud = [
        (format!("{JSON}transfer-encoding: chunked\r\n\r\n"), chunk),
        (format!("{JSON}content-length: 10737418240\r\n\r\n"), vec![b'['; 0x4000]),
        (format!("{JSON}content-length: 300000\r\n\r\n"), vec![b'['; 0x4000]),
        (JSON.to_owned(), b"x-more: and more\r\n".repeat(100)),
        ("GET /".to_owned(), vec![b'x'; 0x4000]),
    ];
    let slow = [
        (JSON.to_owned(), b"x".to_vec()),
        (format!("{JSON}content-length: 300000\r\n\r\n"), b"[".to_vec()),
        (String::new(), b"\r\n".to_vec()),
    ];
    let (ended, mut clients) = (Ended::default(), JoinSet::new());
    for index in 0..SLOW {
        let (beginning, piece) = slow[index % slow.len()].clone();
        clients.spawn(client(address, beginning, piece, Some(Duration::from_secs(1)), Arc::clone(&ended)));
    }
    let loud_ended = Ended::default();
    for index in 0..LOUD * loud.len() {
        let (beginning, piece) = loud[index % loud.len()].clone();
        clients.spawn(client(address, beginning, piece, None, Arc::clone(&loud_ended)));
    }

    let started = Instant::now();
    let mut longest = Duration::ZERO;
    let mut honest = 0;
    while started.elapsed() < FOR {
        let asked = Instant::now();
        let (status, body) = served.post("/v1/events", r#"{"type":"a.b","payload":1}"#).await;
        assert_eq!(status, 202, "{body}");
        longest = longest.max(asked.elapsed());
        honest += 1;
    }
    eventually("the end of everybody loud", PATIENCE, async || {
        (loud_ended.load(Ordering::SeqCst) == LOUD * loud.len()).then_some(())
    })
    .await;
    // A byte a second buys nobody more time than a request has.
    eventually("the end of everybody slow", PATIENCE, async || (ended.load(Ordering::SeqCst) == SLOW).then_some(()))
        .await;
    let peak = memory::peak(served.running.pid());
    measured("server under clients", (peak >> 20, "MiB at most;", honest, "served beside, the longest in", longest));
    assert!(peak < MOST, "it held {} MiB", peak >> 20);
    assert!(longest < 2 * LEEWAY, "somebody honest waited for {longest:?}");
    let page = served.get("/v1/events?limit=1").await;
    assert_eq!(page["data"].as_array().unwrap().len(), 1, "{page}");
    served.running.stopped().await;
}
