//! Names that lead astray (P17): whatever a name server says, only vetted addresses are dialled.
//!
//! One address of loopback is open here, and stands for the public internet. All the others stand for what must not be
//! reached; on each of them listens a trap, on the same port.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider_conformance::receiver::{Answer, NameServer, Question, Receiver, Reply};
use postrider_conformance::wait::eventually;
use postrider_promises::process::{PATIENCE, Workplace};
use tokio::net::TcpListener;

use crate::stage::{Served, measured, undisturbed};

/// What is open, and what is not.
const OPEN: &str = "127.0.0.1";
const CLOSED: [&str; 3] = ["127.0.0.2", "127.0.0.3", "::1"];

/// A busy machine may keep a name server that answers at once from being heard within a second.
const PATIENT: &[&str] = &["--connect-timeout", "12s", "--timeout", "20s"];

/// Listeners where nobody may come, and how many came.
struct Traps(Arc<AtomicUsize>);

impl Traps {
    /// One on each closed address, or none if the port is taken somewhere.
    async fn at(port: u16) -> Option<Self> {
        let mut listeners = Vec::new();
        for address in CLOSED {
            let address: IpAddr = address.parse().unwrap();
            match TcpListener::bind(SocketAddr::new(address, port)).await {
                Ok(listener) => listeners.push(listener),
                // A machine without IPv6 cannot be led there either.
                Err(error) if address.is_ipv6() && error.kind() != std::io::ErrorKind::AddrInUse => {}
                Err(_) => return None,
            }
        }
        let caught = Arc::new(AtomicUsize::new(0));
        for listener in listeners {
            let caught = Arc::clone(&caught);
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    caught.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Some(Self(caught))
    }

    fn caught(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A receiver at the open address whose port is trapped at the others.
async fn trapped(answer: Answer) -> (Receiver, Traps) {
    eventually("a port that is free everywhere", PATIENCE, async || {
        let answer = answer.clone();
        let receiver = Receiver::start(move |_, _| answer.clone()).await;
        let traps = Traps::at(receiver.address().port()).await?;
        Some((receiver, traps))
    })
    .await
}

/// Dispatches with the one open address, these name servers, and every variable that names a proxy set to a trap.
fn workplace(names: &NameServer, traps: &Receiver) -> Workplace {
    let mut workplace = Workplace::on_sqlite()
        .with("POSTRIDER_ALLOWED_NETWORKS", OPEN)
        .with("POSTRIDER_NAME_SERVERS", &names.address().to_string());
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        workplace = workplace.with(name, &traps.url()).with(&name.to_ascii_uppercase(), &traps.url());
    }
    workplace
}

fn many(last: &str) -> Reply {
    let mut addresses = vec![OPEN.parse().unwrap(); 4_000];
    addresses.push(last.parse().unwrap());
    Reply::OverTcp(Box::new(Reply::Addresses(addresses)))
}

fn alias(target: &str, addresses: &[&str]) -> Reply {
    Reply::Alias(target.to_owned(), addresses.iter().map(|text| text.parse().unwrap()).collect())
}

fn lies(lie: &str, truth: &[&str]) -> Reply {
    Reply::AfterLie { lie: lie.parse().unwrap(), truth: truth.iter().map(|text| text.parse().unwrap()).collect() }
}

/// A name, what the name server says to both questions, and the outcome.
fn answers() -> Vec<(&'static str, Reply, &'static str, &'static str)> {
    let over_tcp = |reply| Reply::OverTcp(Box::new(reply));
    let (soon, never) = (Duration::from_millis(100), Duration::from_secs(20));
    vec![
        ("open", Reply::address(OPEN), "response", ""),
        ("closed", Reply::address("127.0.0.2"), "blocked", "destination_loopback_address"),
        ("private", Reply::address("10.0.0.1"), "blocked", "destination_private_address"),
        ("metadata", Reply::address("169.254.169.254"), "blocked", "destination_metadata_address"),
        ("any", Reply::address("0.0.0.0"), "blocked", "destination_unspecified_address"),
        ("mixed", Reply::addresses(&[OPEN, "127.0.0.2"]), "blocked", "127.0.0.2"),
        ("mixed-backwards", Reply::addresses(&["127.0.0.2", OPEN]), "blocked", "127.0.0.2"),
        ("mixed-families", Reply::addresses(&[OPEN, "::1"]), "blocked", "::1"),
        ("mixed-unique-local", Reply::addresses(&[OPEN, "fd00::1"]), "blocked", "destination_unique_local_address"),
        ("mapped", Reply::address("::ffff:127.0.0.2"), "blocked", "127.0.0.2"),
        ("compatible", Reply::address("::127.0.0.2"), "blocked", "destination_compatible_address"),
        ("translated", Reply::address("64:ff9b::127.0.0.2"), "blocked", "destination_nat64_address"),
        ("alias", alias("open.example.com", &[OPEN]), "response", ""),
        ("alias-inside", alias("intranet.example.com", &["127.0.0.2"]), "blocked", "127.0.0.2"),
        ("alias-to-ask-for", alias("closed.example.com", &[]), "blocked", "127.0.0.2"),
        ("alias-open-to-ask-for", alias("open.example.com", &[]), "response", ""),
        ("alias-localhost", alias("localhost", &[]), "", ""),
        ("alias-of-itself", alias("alias-of-itself.example.com", &[]), "dns", "alias-of-itself.example.com"),
        ("many-open", many(OPEN), "response", ""),
        ("many-but-one", many("127.0.0.2"), "blocked", "127.0.0.2"),
        ("overstated", Reply::Overstated(10_000, OPEN.parse().unwrap()), "dns", "overstated.example.com"),
        ("truncated", over_tcp(Reply::address(OPEN)), "response", ""),
        ("truncated-inside", over_tcp(Reply::address("127.0.0.2")), "blocked", "127.0.0.2"),
        ("lies-about-inside", lies("127.0.0.2", &[OPEN]), "response", ""),
        ("lies-about-open", lies(OPEN, &["127.0.0.2"]), "blocked", "127.0.0.2"),
        ("only-lies", lies(OPEN, &[]), "dns", "in time"),
        (
            "answers-another",
            Reply::ToAnotherQuestion(vec![OPEN.parse().unwrap()]),
            "dns",
            "answers-another.example.com",
        ),
        ("slow", Reply::After(soon, Box::new(Reply::address(OPEN))), "response", ""),
        ("too-slow", Reply::After(never, Box::new(Reply::address(OPEN))), "dns", "in time"),
        ("silent", Reply::Silence, "dns", "in time"),
        ("missing", Reply::NoSuchName, "dns", "there is no name `missing.example.com`"),
        ("failing", Reply::Failure, "dns", "Server Failure"),
        ("refused", Reply::Refused, "dns", "Query Refused"),
        ("empty", Reply::addresses(&[]), "dns", "has no address"),
    ]
}

/// P17: everything that a name server can say. Whoever is dialled was in the answer of that attempt, with the whole answer
/// vetted; nobody else has seen a connection, nor has a proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_whatever_a_name_server_says_only_vetted_addresses_are_dialled() {
    let _machine = undisturbed().await;
    let answers = answers();
    let script: Vec<_> =
        answers.iter().map(|(name, reply, ..)| (format!("{name}.example.com"), reply.clone())).collect();
    let names = NameServer::start(move |name, _, _| {
        let found = script.iter().find(|(known, _)| known == name);
        found.map_or(Reply::NoSuchName, |(_, reply)| reply.clone())
    })
    .await;
    let (receiver, traps) = trapped(Answer::status(204).header("connection", "close")).await;
    let proxy = Receiver::answering(200).await;
    let served = Served::start(workplace(&names, &proxy), PATIENT).await;

    let mut deliveries = Vec::new();
    for (name, ..) in &answers {
        deliveries.push(served.send_to(&receiver.url_as(&format!("{name}.example.com"))).await);
    }
    let mut wrong = Vec::new();
    let mut open = 0;
    for ((name, _, outcome, says), delivery) in answers.iter().zip(&deliveries) {
        let attempt = served.attempted(delivery, 1).await["attempts"][0].clone();
        let as_expected =
            attempt["outcome"] == *outcome && attempt["error_detail"].as_str().unwrap_or_default().contains(says);
        // Where the resolver has its own opinion of a name, any outcome will do that does not lead into a trap.
        if !(as_expected || outcome.is_empty()) {
            wrong.push(format!("{name}: {attempt}"));
        }
        open += usize::from(attempt["outcome"] == "response");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(traps.caught(), 0, "an address that was not vetted was dialled");
    assert_eq!(proxy.connections(), 0, "a proxy of the environment was used");
    assert_eq!(receiver.connections(), open, "the open address was dialled for those, and only those, that lead to it");
    measured("answers of name servers", (answers.len(), "open", open));
}

/// P17: a name whose answer changes with every question, as in rebinding. What is dialled is what was vetted, not what the
/// name means a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_an_answer_that_changes_between_vetting_and_dialling_changes_nothing() {
    const EVENTS: usize = 40;
    let _machine = undisturbed().await;
    let names = NameServer::start(|_, question, number| match (question, number % 2) {
        (Question::A, 1) => Reply::address(OPEN),
        (Question::A, _) => Reply::address("127.0.0.2"),
        _ => Reply::addresses(&[]),
    })
    .await;
    let (receiver, traps) = trapped(Answer::status(204).header("connection", "close")).await;
    let proxy = Receiver::answering(200).await;
    let served = Served::start(workplace(&names, &proxy), PATIENT).await;
    let mut deliveries = Vec::new();
    for _ in 0..EVENTS {
        deliveries.push(served.send_to(&receiver.url_as("rebind.example.com")).await);
    }
    let (mut open, mut blocked) = (0, 0);
    for delivery in &deliveries {
        let delivery = served.attempted(delivery, 1).await;
        match delivery["attempts"][0]["outcome"].as_str().unwrap() {
            "response" => open += 1,
            "blocked" => blocked += 1,
            other => panic!("{other}: {delivery}"),
        }
    }
    assert_eq!(traps.caught(), 0, "an address that was not vetted was dialled");
    assert_eq!(receiver.connections(), open);
    assert!(open > 0 && blocked > 0, "both answers were met: {open} and {blocked}");
    measured("rebinding", (open, "open", blocked, "blocked", names.asked("rebind.example.com"), "questions"));
}

/// P17: a connection is kept to the address that was vetted for it. It may serve the next request, which then goes to that
/// address whatever the name means by now; once it has been idle for a while, the name is asked and vetted anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_a_kept_connection_leads_where_it_was_vetted_to_lead_and_is_not_kept_for_long() {
    let _machine = undisturbed().await;
    let names = NameServer::start(|_, question, number| match (question, number) {
        (Question::A, 1) => Reply::address(OPEN),
        (Question::A, _) => Reply::address("127.0.0.2"),
        _ => Reply::addresses(&[]),
    })
    .await;
    let (receiver, traps) = trapped(Answer::status(204)).await;
    let proxy = Receiver::answering(200).await;
    let served = Served::start(workplace(&names, &proxy), PATIENT).await;
    let url = receiver.url_as("kept.example.com");
    assert_eq!(served.outcome(&url).await.0, "response");
    // In between the connection is kept, or this machine was too slow and it is not; neither leads elsewhere.
    let (outcome, detail) = served.outcome(&url).await;
    assert!(outcome == "response" || detail.contains("127.0.0.2"), "{outcome}: {detail}");
    let unused = Instant::now();
    receiver.wait_until("the end of the connection", PATIENCE, |receiver| receiver.closed_connections() == 1).await;
    let kept = unused.elapsed();
    let (outcome, detail) = served.outcome(&url).await;
    assert!(outcome == "blocked" && detail.contains("127.0.0.2"), "{outcome}: {detail}");
    assert_eq!((receiver.connections(), traps.caught()), (1, 0));
    measured("a kept connection, unused, ended after", kept);
}

/// P17: a list of hosts holds when a destination is named, and again at dial for destinations that were named before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p17_an_allowlist_holds_at_creation_and_at_dial() {
    let _machine = undisturbed().await;
    let names = NameServer::start(|_, question, _| match question {
        Question::A => Reply::address(OPEN),
        _ => Reply::addresses(&[]),
    })
    .await;
    let (receiver, _traps) = trapped(Answer::status(204)).await;
    let port = receiver.address().port();
    let url = |host: &str| format!("http://{host}:{port}/");
    let proxy = Receiver::answering(200).await;
    #[rustfmt::skip]
    let hosts = [
        ("good.example.com", true), ("GOOD.example.com", true), ("good.example.com.", true), ("GoOd.ExAmPlE.cOm.", true),
        ("a.wild.example.com", true), ("a.b.wild.example.com", true), ("A.WILD.example.com.", true),
        ("evilgood.example.com", false), ("good.example.com.evil.com", false), ("a.good.example.com", false),
        ("wild.example.com", false), ("evilwild.example.com", false), ("good.example.co", false), ("example.com", false),
        (OPEN, false),
    ];

    // Before there is a list, everything goes.
    let served = Served::start(workplace(&names, &proxy), &["--no-dispatch"]).await;
    let mut early = Vec::new();
    for (host, listed) in hosts {
        early.push((host, listed, served.send_to(&url(host)).await));
    }
    let workplace = served.stopped().await;
    let workplace = workplace.with("POSTRIDER_ALLOWED_HOSTS", "good.example.com,*.wild.example.com");
    let served = Served::start(workplace, &[]).await;
    for (host, listed, delivery) in early {
        let attempt = served.attempted(&delivery, 1).await["attempts"][0].clone();
        let detail = attempt["error_detail"].as_str().unwrap_or_default();
        assert_eq!(attempt["outcome"] == "response", listed, "{host}: {attempt}");
        assert_eq!(detail.contains("destination_host_not_allowed"), !listed, "{host}: {attempt}");
    }
    assert_eq!(names.asked("evilgood.example.com"), 0, "what is not on the list is not even looked up");
    for (host, listed) in hosts {
        let body = serde_json::json!({"url": url(host)}).to_string();
        let (status, answer) = served.post("/v1/endpoints", body).await;
        assert_eq!(status, if listed { 201 } else { 422 }, "{host}: {answer}");
        assert!(listed || answer["code"] == "destination_host_not_allowed", "{host}: {answer}");
    }
}
