//! Document 002, runtime boundaries: each runtime starts only what it needs, and says what it lacks.

use crate::support::{AMOUNT, Anvil, World};

#[tokio::test]
async fn doc_002_runtime_the_dispatcher_alone_refuses_to_start_without_the_hmac_secret() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let mut dispatcher = world.start("webhook-dispatcher", &[("PAYMENTS_WEBHOOK_HMAC_SECRET", "")]);
    let status = dispatcher.ended().await;
    assert_eq!(status.code(), Some(2));
    assert!(dispatcher.log().contains("error: PAYMENTS_WEBHOOK_HMAC_SECRET: not set"), "{}", dispatcher.log());

    let server = world.start("server", &[]);
    server.listening().await;
    let reconciler = world.reconciler(&anvil, &[]);
    reconciler.says(&["reconciling"]).await;
}

#[tokio::test]
async fn doc_002_runtime_what_is_missing_is_named() {
    let world = World::new().await;
    for (runtime, variable) in [
        ("server", "PAYMENTS_DATABASE_URL"),
        ("server", "PAYMENTS_WEBHOOK_ALLOWED_HOSTS"),
        ("reconciler", "PAYMENTS_DATABASE_URL"),
        ("reconciler", "PAYMENTS_RPC_URL"),
        ("webhook-dispatcher", "PAYMENTS_DATABASE_URL"),
        ("webhook-dispatcher", "PAYMENTS_WEBHOOK_ALLOWED_HOSTS"),
    ] {
        let mut process = world.start(runtime, &[("PAYMENTS_RPC_URL", "http://127.0.0.1:1"), (variable, "")]);
        assert_eq!(process.ended().await.code(), Some(2), "{runtime}");
        assert!(process.log().contains(&format!("error: {variable}: not set")), "{runtime}: {}", process.log());
    }
}

#[tokio::test]
async fn doc_002_observability_a_startup_that_fails_says_which_variable_is_wrong() {
    let world = World::new().await;
    let mut process = world.start("webhook-dispatcher", &[("PAYMENTS_WEBHOOK_LEASE", "100ms")]);
    assert_eq!(process.ended().await.code(), Some(2));
    assert!(process.log().contains("error: PAYMENTS_WEBHOOK_LEASE: lease_too_short"), "{}", process.log());
}

#[tokio::test]
async fn doc_002_runtime_each_does_its_own_work_only() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let receiver = postrider_conformance::receiver::Receiver::answering(200).await;
    let request = world.request(Some(&receiver.url())).await;
    anvil.pay(&request.address, AMOUNT).await;
    anvil.mine(5).await;
    // A server and a dispatcher do not look at the chain.
    let _server = world.server().await;
    let mut dispatcher = world.start("webhook-dispatcher", &[]);
    dispatcher.says(&["dispatching"]).await;
    assert!(dispatcher.stop().await.success());
    assert_eq!(world.status(request.id).await, "pending");
    // A reconciler does not send.
    let mut reconciler = world.reconciler(&anvil, &[]);
    world.becomes(request.id, "confirmed").await;
    assert!(reconciler.stop().await.success());
    assert_eq!(world.count("postrider.ready").await, 1);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn doc_002_runtime_the_server_reconciles_in_process_if_it_is_told_to() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let request = world.request(Some("https://hooks.example.com/")).await;
    anvil.pay(&request.address, AMOUNT).await;
    anvil.mine(5).await;
    let mut server =
        world.start("server", &[("PAYMENTS_RECONCILE_IN_SERVER", "true"), ("PAYMENTS_RPC_URL", &anvil.url)]);
    server.listening().await;
    world.becomes(request.id, "confirmed").await;
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn doc_002_degradation_a_dispatcher_with_webhooks_off_sends_nothing() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let receiver = postrider_conformance::receiver::Receiver::answering(200).await;
    let request = world.request(Some(&receiver.url())).await;
    anvil.pay(&request.address, AMOUNT).await;
    let mut reconciler = world.reconciler(&anvil, &[]);
    world.becomes(request.id, "detected").await;
    assert!(reconciler.stop().await.success());
    let mut dispatcher = world.start("webhook-dispatcher", &[("PAYMENTS_WEBHOOKS_ENABLED", "false")]);
    dispatcher.says(&["dispatch is disabled by configuration"]).await;
    assert!(dispatcher.stop().await.success());
    assert_eq!((receiver.connections(), world.count("postrider.ready").await), (0, 1));
}
