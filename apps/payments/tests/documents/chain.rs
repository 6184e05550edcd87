//! The reconciler on a real EVM node: what it reads, and what it does when there is nothing to read.

use std::time::Duration;

use postrider_conformance::receiver::{Answer, Receiver};

use crate::support::{AMOUNT, Anvil, World};

#[tokio::test]
async fn doc_002_min_confirmations_detected_at_latest_and_confirmed_at_depth() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let receiver = Receiver::answering(200).await;
    let request = world.request(Some(&receiver.url())).await;
    let neighbour = world.request(Some(&receiver.url())).await;
    let _reconciler = world.reconciler(&anvil, &[("PAYMENTS_MIN_CONFIRMATIONS", "3")]);
    anvil.pay(&request.address, AMOUNT).await;
    anvil.pay(&neighbour.address, AMOUNT - 1).await;
    world.becomes(request.id, "detected").await;
    // One block less than enough. That the reconciler has looked since is seen by a request that is paid later.
    anvil.mine(1).await;
    let later = world.request(Some(&receiver.url())).await;
    anvil.pay(&later.address, AMOUNT).await;
    world.becomes(later.id, "detected").await;
    assert_eq!(world.status(request.id).await, "detected", "two confirmations are not three");
    anvil.mine(1).await;
    world.becomes(request.id, "confirmed").await;
    assert_eq!(world.status(neighbour.id).await, "pending", "a wei is missing");
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(world.told(request.id).await, [pair("pending", "detected"), pair("detected", "confirmed")]);
}

#[tokio::test]
async fn doc_002_min_confirmations_of_one_confirms_with_the_newest_block() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let request = world.request(Some("https://hooks.example.com/")).await;
    anvil.pay(&request.address, AMOUNT).await;
    anvil.mine(1).await;
    let _reconciler = world.reconciler(&anvil, &[("PAYMENTS_MIN_CONFIRMATIONS", "1")]);
    world.becomes(request.id, "confirmed").await;
    assert_eq!(world.told(request.id).await, [("pending".to_owned(), "confirmed".to_owned())]);
}

#[tokio::test]
async fn what_is_not_confirmed_in_time_expires_and_what_is_confirmed_does_not() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let url = Some("https://hooks.example.com/");
    let soon = Duration::from_millis(1);
    let (unpaid, unconfirmed) = (world.request_until(url, soon).await, world.request_until(url, soon).await);
    let confirmed = world.request_until(url, soon).await;
    anvil.pay(&confirmed.address, AMOUNT).await;
    anvil.mine(5).await;
    anvil.pay(&unconfirmed.address, AMOUNT).await;
    let _reconciler = world.reconciler(&anvil, &[("PAYMENTS_MIN_CONFIRMATIONS", "3")]);
    world.becomes(unpaid.id, "expired").await;
    world.becomes(unconfirmed.id, "expired").await;
    world.becomes(confirmed.id, "confirmed").await;
    assert_eq!(world.told(unpaid.id).await, [("pending".to_owned(), "expired".to_owned())]);
}

#[tokio::test]
async fn while_the_node_is_away_nothing_is_decided_and_everything_goes_on_when_it_is_back() {
    let world = World::new().await;
    let url = Some("https://hooks.example.com/");
    // Below the range from which the kernel takes ports for others while the node is away.
    let port = 20_000 + u16::from_ne_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap()) % 12_000;
    let anvil = Anvil::start_on(port).await;
    let before = world.request(url).await;
    anvil.pay(&before.address, AMOUNT).await;
    let rpc_url = format!("http://127.0.0.1:{port}");
    let mut reconciler = world.start("reconciler", &[("PAYMENTS_RPC_URL", &rpc_url)]);
    world.becomes(before.id, "detected").await;
    anvil.kill().await;
    let paid = world.request(url).await;
    let overdue = world.request_until(url, Duration::from_millis(1)).await;
    reconciler.says(&["a round failed", "node_unreachable"]).await;
    assert!(reconciler.is_running());
    assert_eq!(world.status(overdue.id).await, "pending", "it may have been paid, nobody knows");
    assert_eq!(world.count("postrider.events").await, 1, "only what was told before");

    let anvil = Anvil::start_on(port).await;
    anvil.pay(&paid.address, AMOUNT).await;
    world.becomes(overdue.id, "expired").await;
    world.becomes(paid.id, "detected").await;
    anvil.mine(5).await;
    world.becomes(paid.id, "confirmed").await;
    assert!(reconciler.stop().await.success());
}

#[tokio::test]
async fn a_node_that_answers_nonsense_changes_nothing() {
    let world = World::new().await;
    let overdue = world.request_until(Some("https://hooks.example.com/"), Duration::from_millis(1)).await;
    for (answer, complaint) in [
        (Answer::status(500), "node_unreachable"),
        (Answer::status(200).body("<html>"), "node_answer_invalid"),
        (Answer::status(200).body(r#"{"jsonrpc":"2.0","id":1,"result":7}"#), "node_answer_invalid"),
        (Answer::status(200).body(r#"{"error":{"code":-32000,"message":"no state"}}"#), "node_refused"),
        (Answer::status(200).body("x".repeat(100_000)), "node_answer_invalid"),
    ] {
        let node = Receiver::start(move |_, _| answer.clone()).await;
        let url = format!("{}canary-key", node.url());
        let mut reconciler = world.start("reconciler", &[("PAYMENTS_RPC_URL", &url)]);
        reconciler.says(&[complaint]).await;
        assert!(reconciler.stop().await.success());
        assert!(!reconciler.log().contains("canary"), "{}", reconciler.log());
    }
    assert_eq!(world.status(overdue.id).await, "pending");
}
