//! Document 002, flow 2: a transition and its outbox row are one thing.

use std::time::Duration;

use crate::support::{AMOUNT, Anvil, World};

const URL: &str = "https://hooks.example.com/payments";

/// A node that has seen a payment to a new request, deep enough.
async fn paid(world: &World, anvil: &Anvil, url: Option<&str>) -> uuid::Uuid {
    let request = world.request(url).await;
    anvil.pay(&request.address, AMOUNT).await;
    anvil.mine(5).await;
    request.id
}

#[tokio::test]
async fn doc_002_flow_2_a_transition_enqueues_its_event_with_a_snapshot_of_the_destination() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let id = paid(&world, &anvil, Some(URL)).await;
    let _reconciler = world.reconciler(&anvil, &[]);
    world.becomes(id, "confirmed").await;
    let events = world.events(id).await;
    assert_eq!(events.len(), 1);
    let body = events[0].as_object().unwrap();
    let names: Vec<_> = body.keys().map(String::as_str).collect();
    let mut expected = ["event_id", "event_type", "occurred_at", "payment_request_id", "previous_status", "new_status"];
    expected.sort_unstable();
    assert_eq!(names.len(), expected.len());
    assert!(expected.iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!(body["event_type"], "payment_request.status_changed");
    assert_eq!(body["payment_request_id"], id.to_string());
    let written: String = sqlx::query_scalar("select to_char(updated_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') from payments.requests where id = $1")
        .bind(id).fetch_one(&world.pool()).await.unwrap();
    assert!(body["occurred_at"].as_str().unwrap().starts_with(&written), "when the row says that it changed");

    // What happens to the request afterwards does not reach the outbox.
    sqlx::query("update payments.requests set webhook_url = 'https://a.good.com/' where id = $1")
        .bind(id)
        .execute(&world.pool())
        .await
        .unwrap();
    let destination: String =
        sqlx::query_scalar("select destination_url from postrider.deliveries").fetch_one(&world.pool()).await.unwrap();
    assert_eq!(destination, URL);
}

#[tokio::test]
async fn doc_002_consistency_without_its_outbox_row_there_is_no_transition() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    // An outbox that takes nothing.
    sqlx::raw_sql(
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'full'; end $$; \
         create trigger refuse before insert on postrider.deliveries for each row execute function public.refuse()",
    )
    .execute(&world.pool())
    .await
    .unwrap();
    let id = paid(&world, &anvil, Some(URL)).await;
    let reconciler = world.reconciler(&anvil, &[]);
    reconciler.says(&["the transition failed", &id.to_string()]).await;
    assert_eq!(world.status(id).await, "pending");
    assert_eq!(world.count("postrider.events").await, 0);
    sqlx::query("drop trigger refuse on postrider.deliveries").execute(&world.pool()).await.unwrap();
    world.becomes(id, "confirmed").await;
    assert_eq!(world.told(id).await.len(), 1);
}

#[tokio::test]
async fn doc_002_flow_2_no_event_when_nothing_changed() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let idle = world.request(Some(URL)).await;
    let id = paid(&world, &anvil, Some(URL)).await;
    let _reconciler = world.reconciler(&anvil, &[]);
    world.becomes(id, "confirmed").await;
    // Several rounds later, as seen by another request that is made and paid after each.
    for _ in 0..3 {
        let later = paid(&world, &anvil, Some(URL)).await;
        world.becomes(later, "confirmed").await;
    }
    assert!(world.told(idle.id).await.is_empty());
    assert_eq!(world.told(id).await.len(), 1, "a final status is not told again");
}

#[tokio::test]
async fn doc_002_degradation_webhooks_off_leaves_reconciliation_unaffected_and_the_outbox_empty() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let (with, without) = (paid(&world, &anvil, Some(URL)).await, paid(&world, &anvil, None).await);
    let overdue = world.request_until(Some(URL), Duration::from_millis(1)).await;
    let _reconciler = world.reconciler(&anvil, &[("PAYMENTS_WEBHOOKS_ENABLED", "false")]);
    world.becomes(with, "confirmed").await;
    world.becomes(without, "confirmed").await;
    world.becomes(overdue.id, "expired").await;
    for table in ["postrider.events", "postrider.deliveries", "payments.held_changes"] {
        assert_eq!(world.count(table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn doc_002_an_allowlist_that_became_stricter_does_not_stop_a_transition() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let id = paid(&world, &anvil, Some("https://no-longer-allowed.example.net/")).await;
    let _reconciler = world.reconciler(&anvil, &[]);
    world.becomes(id, "confirmed").await;
    assert_eq!(world.told(id).await.len(), 1);
    // The dispatcher looks at the list again, before it dials.
    let dispatcher = world.start("webhook-dispatcher", &[]);
    world.eventually_counts("postrider.deliveries where status = 'dead'", 1).await;
    let outcome: String =
        sqlx::query_scalar("select distinct outcome from postrider.attempts").fetch_one(&world.pool()).await.unwrap();
    assert_eq!(outcome, "blocked", "{}", dispatcher.log());
}
