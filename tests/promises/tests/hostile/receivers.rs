//! Receivers that misbehave, all at once, each its own endpoint of one process.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use postrider_conformance::receiver::{
    Answer, Authority, Hostile, Http2Attack, Identity, NameServer, Question, Receiver, Reply,
};
use postrider_conformance::wait::eventually;
use postrider_promises::process::{PATIENCE, Workplace};
use serde_json::Value;

use crate::stage::{LEEWAY, Served, TIMEOUT, measured, text, undisturbed};

/// A host whose name leads to loopback.
const HOST: &str = "tls.example.com";
/// How much of a response is kept, by default.
const KEPT: usize = 4096;

/// A receiver, and what the record of an attempt at it must say.
struct Case {
    name: &'static str,
    url: String,
    outcome: &'static str,
    status: Option<u64>,
    says: &'static str,
}

/// The receivers, who are there for as long as this value is.
#[derive(Default)]
struct Crowd {
    cases: Vec<Case>,
    hostile: Vec<Hostile>,
    honest: Vec<Receiver>,
}

impl Crowd {
    fn add(&mut self, name: &'static str, url: String, outcome: &'static str, status: Option<u64>, says: &'static str) {
        self.cases.push(Case { name, url, outcome, status, says });
    }

    fn hostile(&mut self, name: &'static str, hostile: Hostile, outcome: &'static str, says: &'static str) {
        let status = (outcome == "response").then_some(200);
        self.add(name, hostile.url(), outcome, status, says);
        self.hostile.push(hostile);
    }

    async fn http2(&mut self, authority: &Authority, attack: Http2Attack, outcome: &'static str, says: &'static str) {
        let name = match attack {
            Http2Attack::EndlessHead => "HTTP/2: a head without end",
            Http2Attack::Settings => "HTTP/2: a flood of settings",
            Http2Attack::Pings => "HTTP/2: a flood of pings",
            Http2Attack::Interim => "HTTP/2: a flood of 1xx",
            Http2Attack::WideInterim => "HTTP/2: a flood of wide 1xx",
            Http2Attack::EmptyPieces => "HTTP/2: a body of empty pieces",
            Http2Attack::EndlessBody => "HTTP/2: a body without end",
            Http2Attack::ClosedWindow => "HTTP/2: a window that never opens",
            Http2Attack::Reset => "HTTP/2: a stream that is reset",
            Http2Attack::GoAway => "HTTP/2: a connection that is given up",
        };
        let hostile = Hostile::http2(authority.identity(HOST), attack).await;
        let url = format!("https://{HOST}:{}/", hostile.address().port());
        self.add(name, url, outcome, (outcome == "response").then_some(200), says);
        self.hostile.push(hostile);
    }

    async fn tls(&mut self, name: &'static str, identity: Identity, outcome: &'static str, says: &'static str) {
        let receiver = Receiver::start_tls(&identity, |_, _| Answer::status(204)).await;
        self.add(name, receiver.url_as(HOST), outcome, (outcome == "response").then_some(204), says);
        self.honest.push(receiver);
    }

    async fn answers(&mut self, name: &'static str, answer: Answer, status: u64, says: &'static str) {
        let receiver = Receiver::start(move |_, _| answer.clone()).await;
        self.add(name, receiver.url(), "response", Some(status), says);
        self.honest.push(receiver);
    }

    async fn connections(&mut self) {
        self.hostile("refused", Hostile::refuses().await, "connect", "connection refused by 127.0.0.1:");
        // While it is dialled, before the request was handed over, or before a response: three wordings, one outcome.
        self.hostile("reset", Hostile::resets().await, "connect", "reset");
        self.hostile("black hole", Hostile::black_hole().await, "timeout", "while connecting");
        self.hostile("says nothing", Hostile::says_nothing().await, "timeout", "while waiting for the response");
        let drips = Hostile::drips_headers(Duration::from_secs(1)).await;
        self.hostile("a byte of headers a second", drips, "timeout", "while waiting for the response");
        self.hostile(
            "stalls in its body",
            Hostile::stalls_in_body().await,
            "timeout",
            "while reading the response body",
        );
        let closes = Hostile::closes_without_a_word().await;
        self.hostile("closes without a word", closes, "protocol", "connection closed before the head of a response");
        let breaks_off = Hostile::breaks_off().await;
        self.hostile("closes half-way", breaks_off, "protocol", "connection closed before the response was complete");
        let resets = Hostile::resets_in_body().await;
        self.hostile("resets half-way", resets, "protocol", "connection reset before the response was complete");
    }

    async fn responses(&mut self) {
        self.hostile("a body without end", Hostile::endless_body().await, "response", "");
        self.hostile("ten gigabytes", Hostile::ten_gigabytes().await, "response", "");
        self.hostile("a gzip bomb", Hostile::gzip_bomb(1 << 30).await, "response", "");
        self.hostile("garbage", Hostile::garbage().await, "protocol", "the response is not valid HTTP");
        self.hostile("a header of 1 MB", Hostile::megabyte_header().await, "protocol", "head is too large");
        self.hostile("headers without end", Hostile::endless_headers().await, "protocol", "head is too large");
        let flood = Hostile::interim_flood().await;
        self.hostile("a flood of 1xx", flood, "protocol", "the receiver sent far more than a response's head");
        let two = Hostile::two_lengths().await;
        self.hostile("two lengths", two, "protocol", "both Content-Length and Transfer-Encoding");
    }

    async fn statuses(&mut self, trap: &Receiver) {
        self.answers("200", Answer::status(200).body("thanks"), 200, "").await;
        self.answers("201", Answer::status(201), 201, "").await;
        self.answers("204", Answer::status(204), 204, "").await;
        self.answers("299", Answer::status(299), 299, "").await;
        for (name, status, says) in [
            ("301", 301, "HTTP 301"),
            ("302", 302, "HTTP 302"),
            ("303", 303, "HTTP 303"),
            ("307", 307, "HTTP 307"),
            ("308", 308, "HTTP 308"),
        ] {
            let code = u16::try_from(status).unwrap();
            self.answers(name, Answer::status(code).header("location", &trap.url()), status, says).await;
        }
        let metadata = Answer::status(302).header("location", "http://169.254.169.254/latest/meta-data/");
        self.answers("a redirect inside", metadata, 302, "HTTP 302").await;
        self.answers("404", Answer::status(404).body("no such hook"), 404, "HTTP 404: no such hook").await;
        self.answers("410", Answer::status(410), 410, "HTTP 410").await;
        self.answers("500", Answer::status(500), 500, "HTTP 500").await;
    }

    async fn sessions(&mut self, authority: &Authority) {
        self.tls("TLS", authority.identity(HOST), "response", "").await;
        self.tls("TLS with HTTP/2", authority.identity(HOST).with_http2(), "response", "").await;
        self.tls("TLS expired", authority.expired_identity(HOST), "tls", "certificate expired").await;
        let other = authority.identity("other.example.com");
        self.tls("TLS for another name", other, "tls", "certificate is for another name, not for tls.example.com")
            .await;
        self.tls("TLS self-signed", Identity::self_signed(HOST), "tls", "self-signed or its issuer is not trusted")
            .await;
        let stalled = Hostile::says_nothing().await;
        self.add("TLS stalled", stalled.tls_url(), "timeout", None, "while negotiating TLS");
        let plain = Hostile::greets("220 mail.example.test ready\r\n").await;
        self.add("no TLS at all", plain.tls_url(), "tls", None, "does not speak TLS");
        self.hostile.extend([stalled, plain]);
    }

    async fn http2_sessions(&mut self, authority: &Authority) {
        use Http2Attack as Attack;
        let flood = "far more than a response's head";
        self.http2(authority, Attack::EndlessHead, "protocol", "too_many_continuations").await;
        self.http2(authority, Attack::Settings, "protocol", flood).await;
        self.http2(authority, Attack::Pings, "protocol", flood).await;
        self.http2(authority, Attack::Interim, "protocol", flood).await;
        self.http2(authority, Attack::WideInterim, "protocol", flood).await;
        self.http2(authority, Attack::EmptyPieces, "protocol", "too_many_data_frames").await;
        self.http2(authority, Attack::EndlessBody, "response", "").await;
        self.http2(authority, Attack::ClosedWindow, "timeout", "while waiting for the response").await;
        self.http2(authority, Attack::Reset, "protocol", "stream error received").await;
        self.http2(authority, Attack::GoAway, "protocol", "connection error received").await;
    }

    fn names(&mut self) {
        for (name, url, outcome, says) in [
            ("name not found", "http://nowhere.example.com/", "dns", "there is no name `nowhere.example.com`"),
            ("name without address", "http://empty.example.com/", "dns", "exists but has no address"),
            ("name server that fails", "http://broken.example.com/", "dns", "with an error: Server Failure"),
            ("name server that is slow", "http://slow.example.com/", "dns", "no name server answered in time"),
            ("name that leads inside", "http://inside.example.com/", "blocked", "10.1.2.3"),
        ] {
            self.add(name, url.to_owned(), outcome, None, says);
        }
    }
}

async fn name_server() -> NameServer {
    NameServer::start(|name, question, _| match name {
        HOST => match question {
            Question::A => Reply::loopback(),
            _ => Reply::addresses(&[]),
        },
        "empty.example.com" => Reply::addresses(&[]),
        "broken.example.com" => Reply::Failure,
        "slow.example.com" => Reply::After(Duration::from_secs(20), Box::new(Reply::loopback())),
        "inside.example.com" => Reply::address("10.1.2.3"),
        _ => Reply::NoSuchName,
    })
    .await
}

/// A server that trusts `authority` and asks `names`.
async fn serving(authority: &Authority, names: &NameServer) -> Served {
    let workplace = Workplace::on_sqlite();
    let file = workplace.path().join("authority.pem");
    std::fs::write(&file, authority.root_pem()).unwrap();
    let workplace = workplace
        .with("SSL_CERT_FILE", file.to_str().unwrap())
        .with("POSTRIDER_NAME_SERVERS", &names.address().to_string());
    Served::start(workplace, &[]).await
}

/// Sends to an honest receiver, again and again, until it is told to stop; returns how long each took.
async fn steady(served: &Served, stop: &tokio::sync::watch::Receiver<bool>) -> Vec<Duration> {
    let receiver = Receiver::answering(204).await;
    served.endpoint(&receiver.url(), "healthy").await;
    let mut took = Vec::new();
    while !*stop.borrow() {
        let sent = Instant::now();
        served.send("healthy").await;
        receiver.wait_for(took.len() + 1, PATIENCE).await;
        took.push(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    took
}

fn delay(delivery: &Value) -> Duration {
    let instant = |name: &str| delivery[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    instant("next_attempt_at").duration_since(instant("last_attempted_at")).unsigned_abs()
}

/// P15 and P16 on the way: each receiver that misbehaves gives its own outcome, before one deadline that covers the body,
/// and whoever behaves is served all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_misbehaviour_has_its_own_outcome_in_time_while_others_are_served() {
    let _machine = undisturbed().await;
    let (authority, names, trap) = (Authority::new(), name_server().await, Receiver::answering(200).await);
    let mut crowd = Crowd::default();
    crowd.connections().await;
    crowd.responses().await;
    crowd.statuses(&trap).await;
    crowd.sessions(&authority).await;
    crowd.http2_sessions(&authority).await;
    crowd.names();
    let served = serving(&authority, &names).await;

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let judging = async {
        let mut deliveries = Vec::new();
        for (index, case) in crowd.cases.iter().enumerate() {
            served.endpoint(&case.url, &format!("case.{index}")).await;
        }
        for index in 0..crowd.cases.len() {
            deliveries.push(served.send(&format!("case.{index}")).await);
        }
        let mut wrong = Vec::new();
        let mut longest = (0, "");
        for (case, delivery) in crowd.cases.iter().zip(&deliveries) {
            let delivery = served.attempted(delivery, 1).await;
            let attempt = &delivery["attempts"][0];
            let detail = text(&attempt["error_detail"]);
            let as_expected = attempt["outcome"] == case.outcome
                && attempt["status_code"].as_u64() == case.status
                && detail.contains(case.says)
                && detail.is_empty() == case.says.is_empty();
            if !as_expected {
                wrong.push(format!("{}: {attempt}", case.name));
            }
            longest = longest.max((attempt["duration_ms"].as_u64().unwrap(), case.name));
            assert!(text(&attempt["response_excerpt"]).len() <= KEPT, "{}: {attempt}", case.name);
        }
        stop.send_replace(true);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        longest
    };
    let (took, longest) = tokio::join!(steady(&served, &stopped), judging);
    let most = u64::try_from((TIMEOUT + LEEWAY).as_millis()).unwrap();
    assert!(longest.0 <= most, "{} took {} ms", longest.1, longest.0);
    assert_eq!(trap.connections(), 0, "a redirect was followed");
    let slowest = took.iter().max().unwrap();
    assert!(*slowest < TIMEOUT + LEEWAY, "somebody honest had to wait for {slowest:?}");
    measured("hostile receivers", (crowd.cases.len(), "longest attempt, ms", longest));
    measured("served beside them", (took.len(), "slowest", slowest));
}

/// A receiver that says how long it wants to be left alone is believed, where that means anything and within bounds; one
/// that says it is gone is disabled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_receiver_asks_for_is_honoured_within_bounds() {
    let _machine = undisturbed().await;
    let in_two_hours = Timestamp::now() + Duration::from_secs(7_200);
    let in_two_hours = in_two_hours.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let hour = Duration::from_secs(3_600);
    let exactly = |delay: Duration| (delay, delay);
    #[rustfmt::skip]
    let cases = [
        ("429 Later\r\nRetry-After: 7200", exactly(2 * hour)),
        ("503 Later\r\nRetry-After: 7200", exactly(2 * hour)),
        // Sooner than the schedule would, which it cannot ask for.
        ("503 Later\r\nRetry-After: 5", exactly(hour)),
        // By the receiver's own clock, which is years behind.
        ("503 Later\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 10:49:37 GMT", exactly(2 * hour)),
        ("503 Later\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 07:49:37 GMT", exactly(hour)),
        ("429 Later\r\nRetry-After: 1000000000", exactly(24 * hour)),
        ("429 Later\r\nRetry-After: 99999999999999999999999999", exactly(24 * hour)),
        ("429 Later\r\nRetry-After: tomorrow", exactly(hour)),
        ("429 Later\r\nRetry-After: -7200", exactly(hour)),
        ("500 Sorry\r\nRetry-After: 7200", exactly(hour)),
    ]
    .map(|(answer, delay)| (answer.to_owned(), delay));
    let mut cases = Vec::from(cases);
    // Without the receiver's clock, by the database's.
    let without_date = format!("503 Later\r\nRetry-After: {in_two_hours}");
    cases.push((without_date, ((2 * hour).saturating_sub(PATIENCE), 2 * hour)));

    let served = Served::start(Workplace::on_sqlite(), &[]).await;
    let mut flying = Vec::new();
    for (answer, expected) in &cases {
        let hostile = Hostile::answering(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n")).await;
        flying.push((served.send_to(&hostile.url()).await, hostile, answer, expected));
    }
    for (delivery, _hostile, answer, (least, most)) in &flying {
        let delivery = served.attempted(delivery, 1).await;
        let delay = delay(&delivery);
        assert!(*least <= delay && delay <= *most, "{answer}: the next attempt comes after {delay:?}");
    }

    let gone = Receiver::answering(410).await;
    let endpoint = served.endpoint(&gone.url(), "gone").await;
    let delivery = served.send("gone").await;
    served.attempted(&delivery, 1).await;
    let path = format!("/v1/endpoints/{endpoint}");
    eventually("the endpoint's end", PATIENCE, async || {
        (served.get(&path).await["status"] == "disabled").then_some(())
    })
    .await;
    assert_eq!(gone.request_count(), 1, "it was asked once");
}
