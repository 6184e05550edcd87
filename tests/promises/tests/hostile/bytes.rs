//! The same bytes from end to end (P18), and what changes from attempt to attempt (P19).

use std::collections::BTreeSet;

use postrider::{Secret, SignatureScheme};
use postrider_conformance::receiver::{Answer, Receiver};
use postrider_postgres::testing::TestDatabase;
use postrider_promises::canary;
use postrider_promises::process::{PATIENCE, Workplace};
use sqlx::Connection as _;

use crate::stage::{Served, undisturbed};

/// JSON that a parser would read, and a printer would print otherwise.
fn payloads() -> Vec<String> {
    let canary = canary::PAYLOAD;
    let mut payloads = vec![
        format!(r#"{{"z":1,"a":2,"canary":"{canary}"}}"#),
        format!(r#"{{"a":1,"a":2,"a":"{canary}"}}"#),
        format!("{{ \"a\" :\t[ 1 ,\n2 ] ,\r\n \"canary\":\"{canary}\"  }}"),
    ];
    payloads.extend(
        [
            "1e400",
            "-0",
            "-0.0",
            "1.0",
            "1E+2",
            "0.1000000000000000055511151231257827",
            "123456789012345678901234567890",
            r#""\u00e9\u000a\/\ud83d\ude00\u007f""#,
            "\"é😀\u{7f}\u{2028}\"",
            r#"{"":{"":[[],{},null,true]}}"#,
            r#"["\\u0041","\u0041"]"#,
        ]
        .map(str::to_owned),
    );
    payloads.push(format!("{}{}", "[".repeat(100), "]".repeat(100)));
    payloads
}

/// What the database has of an event, byte for byte.
async fn stored(database: &TestDatabase, event: &str) -> Vec<u8> {
    let mut connection = sqlx::PgConnection::connect(database.url()).await.unwrap();
    let id: postrider::EventId = event.parse().unwrap();
    let statement = "select payload from postrider.events where id = $1";
    let payload = sqlx::query_scalar(statement).bind(id.as_uuid()).fetch_one(&mut connection).await;
    payload.unwrap()
}

/// P18 and P19: odd JSON through the API, into Postgres, and out in three attempts each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p18_bytes_accepted_are_stored_signed_and_sent_and_p19_attempts_differ_in_time_only() {
    let _machine = undisturbed().await;
    let database = TestDatabase::create().await;
    let receiver = Receiver::start(|request, _| match request.header("postrider-attempt") {
        "3" => Answer::status(200),
        _ => Answer::status(500),
    })
    .await;
    // More than a second, so that no two attempts have the same timestamp.
    let workplace = Workplace::on(database.url());
    let served = Served::start(workplace, &["--retry-schedule", "1100ms"]).await;
    let secrets = [Secret::parse(canary::SIGNING_SECRET).unwrap()];

    let payloads = payloads();
    let mut sent = Vec::new();
    for payload in &payloads {
        // The payload is put in as it is: no printer has had it.
        let (head, tail) =
            (r#"{"type":"odd.json","payload":"#, format!(r#","destination_url":"{}"}}"#, receiver.url()));
        let (status, event) = served.post("/v1/events", format!("{head}{payload}{tail}")).await;
        assert_eq!(status, 202, "{payload}: {event}");
        sent.push((event["id"].as_str().unwrap().to_owned(), payload));
    }
    let requests = receiver.wait_for(3 * payloads.len(), PATIENCE).await;
    assert_eq!(requests.len(), 3 * payloads.len());
    for (event, payload) in &sent {
        assert_eq!(stored(&database, event).await, payload.as_bytes(), "stored: {payload}");
        let mine: Vec<_> = requests.iter().filter(|request| request.header("webhook-id") == event).collect();
        let attempts: Vec<_> = mine.iter().map(|request| request.header("postrider-attempt")).collect();
        assert_eq!(attempts, ["1", "2", "3"], "{payload}");
        for request in &mine {
            assert_eq!(request.body, payload.as_bytes(), "sent: {payload}");
            let now = jiff::Timestamp::now().as_second();
            let tolerance = postrider::signature::DEFAULT_TOLERANCE;
            let scheme = SignatureScheme::Standard;
            scheme.verify_headers(&secrets, &request.headers, payload.as_bytes(), now, tolerance).unwrap();
        }
        let distinct = |name: &str| mine.iter().map(|request| request.header(name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(distinct("postrider-delivery-id").len(), 1);
        assert_eq!(distinct("webhook-timestamp").len(), 3, "{:?}", distinct("webhook-timestamp"));
        assert_eq!(distinct("webhook-signature").len(), 3);
        let told = served.text(&format!("/v1/events/{event}")).await;
        assert!(told.contains(&format!(r#""payload":{payload}"#)), "told: {payload}");
    }
}
