//! Callers who post one event each to a server, which writes what it gathers.

use std::time::Duration;

use postrider_promises::process::Workplace;
use serde_json::json;

use crate::ledger::{Ledger, per};
use crate::wire::Wired;
use crate::work::PAYLOAD_BYTES;

/// So slow that others come in meanwhile, also on a machine that is busy with something else.
const EACH_WAY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_together_are_written_together() {
    const CALLERS: usize = 64;
    const EACH: usize = 10;
    const COUNT: usize = CALLERS * EACH;
    let wired = Wired::new().await;
    let workplace = Workplace::on(&wired.url());
    let server = workplace.start(["serve", "--dev", "--listen", "127.0.0.1:0", "--json", "--no-dispatch"]);
    let started = server.json_line("the start", |line| line["listening"].is_string()).await;
    let url = format!("{}/v1/events", started["listening"].as_str().unwrap());
    // Another test may have chosen the same before; nothing here is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();

    wired.proxy.delay(EACH_WAY);
    let before = wired.proxy.counts();
    let event = json!({
        "type": "cost.counted",
        "payload": { "filling": "x".repeat(PAYLOAD_BYTES) },
        "destination_url": "https://example.com/hook",
    });
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (client, url, event) = (client.clone(), url.clone(), event.clone());
        callers.spawn(async move {
            for _ in 0..EACH {
                let answer = client.post(&url).json(&event).send().await.unwrap();
                assert_eq!(answer.status(), 202);
            }
        });
    }
    callers.join_all().await;
    let counts = wired.proxy.counts().since(&before);
    server.stopped().await;

    let mut ledger = Ledger::of("Servers");
    ledger.remark("statements", &counts.beginnings());
    let (statements, transactions) = (per(counts.carried_out(), COUNT), per(counts.transactions, COUNT));
    ledger.note("64 callers, one event after the other each: statements per event", statements, 0.25);
    ledger.note("64 callers, one event after the other each: transactions per event", transactions, 0.25);
    ledger.close();
}
