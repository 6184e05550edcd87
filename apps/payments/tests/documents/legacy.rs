//! Document 002, risk: requests that are older than webhooks.

use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::PATIENCE;

use crate::support::{AMOUNT, Anvil, World, bodies};

#[tokio::test]
async fn doc_002_risk_legacy_rows_are_never_dispatched_are_listed_and_go_out_once_remediated() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let receiver = Receiver::answering(200).await;
    let legacy = world.request(None).await;
    let modern = world.request(Some(&receiver.url())).await;
    let _dispatcher = world.start("webhook-dispatcher", &[]);
    let _reconciler = world.reconciler(&anvil, &[("PAYMENTS_MIN_CONFIRMATIONS", "3")]);
    anvil.pay(&legacy.address, AMOUNT).await;
    world.becomes(legacy.id, "detected").await;
    anvil.mine(5).await;
    world.becomes(legacy.id, "confirmed").await;
    // Never dispatched, though a dispatcher runs: a later one passes it by.
    anvil.pay(&modern.address, AMOUNT).await;
    receiver.wait_for(1, PATIENCE).await;
    assert!(world.told(legacy.id).await.is_empty(), "nothing of it is in the outbox");

    let (status, listed) = world.command(&["legacy", "list"], &[]).await;
    assert!(status.success());
    let lines: Vec<serde_json::Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{listed}");
    assert_eq!((&lines[0]["id"], &lines[0]["held_changes"]), (&legacy.id.to_string().into(), &2.into()));
    assert_eq!((&lines[0]["status"], &lines[0]["reason"]), (&"confirmed".into(), &"no webhook_url".into()));

    // The remediation is held to the same allowlist.
    let id = legacy.id.to_string();
    let (status, output) = world.command(&["legacy", "assign", &id, "https://elsewhere.com/"], &[]).await;
    assert_eq!(status.code(), Some(4), "{output}");
    assert!(output.contains("destination_host_not_allowed"), "{output}");

    let (status, output) = world.command(&["legacy", "assign", &id, &receiver.url()], &[]).await;
    assert!(status.success() && output.contains("2 changes"), "{output}");
    receiver.wait_for(3, PATIENCE).await;
    let mut statuses: Vec<_> = bodies(&receiver)
        .iter()
        .filter(|body| body["payment_request_id"] == id)
        .map(|body| body["new_status"].as_str().unwrap().to_owned())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["confirmed", "detected"]);
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(world.told(legacy.id).await, [pair("pending", "detected"), pair("detected", "confirmed")]);

    let (_, listed) = world.command(&["legacy", "list"], &[]).await;
    assert_eq!(listed, "", "none is left");
    let (status, output) = world.command(&["legacy", "assign", &id, &receiver.url()], &[]).await;
    assert_eq!(status.code(), Some(1), "nothing goes out twice: {output}");
    assert_eq!(world.told(legacy.id).await.len(), 2);
}

#[tokio::test]
async fn doc_002_risk_an_open_legacy_row_is_listed_and_told_as_usual_once_it_has_a_destination() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let legacy = world.request(None).await;
    let (_, listed) = world.command(&["legacy", "list"], &[]).await;
    assert!(listed.contains(&legacy.id.to_string()), "{listed}");
    let id = legacy.id.to_string();
    let (status, output) = world.command(&["legacy", "assign", &id, "https://Hooks.Example.com"], &[]).await;
    assert!(status.success() && output.contains("https://hooks.example.com/; 0 changes"), "{output}");
    let _reconciler = world.reconciler(&anvil, &[]);
    anvil.pay(&legacy.address, AMOUNT).await;
    world.becomes(legacy.id, "detected").await;
    assert_eq!(world.told(legacy.id).await.len(), 1);
}

#[tokio::test]
async fn a_destination_that_cannot_be_read_holds_back_the_event_and_not_the_transition() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let damaged = world.request(Some("not a url")).await;
    anvil.pay(&damaged.address, AMOUNT).await;
    let _reconciler = world.reconciler(&anvil, &[]);
    world.becomes(damaged.id, "detected").await;
    assert!(world.told(damaged.id).await.is_empty());
    let (_, listed) = world.command(&["legacy", "list"], &[]).await;
    assert!(listed.contains(&damaged.id.to_string()) && listed.contains("destination_"), "{listed}");
}
