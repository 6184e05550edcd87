//! A change of a session and its event are one transaction.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use gateway::sessions::{SessionError, SessionStatus};
use gateway::{Gateway, OpenError};
use postrider::{DeliveryFilter, PageRequest, SecretKey, Store as _};

use support::{Bench, settings};

async fn enqueued(bench: &Bench) -> u64 {
    bench.gateway.store().count_deliveries(&DeliveryFilter::default()).await.unwrap()
}

/// From now on no event can be written.
async fn break_enqueueing(bench: &Bench) {
    let sql = "create trigger no_events before insert on postrider_events begin select raise(abort, 'broken'); end";
    let broken = bench.gateway.store().transaction(|tx| {
        tx.connection().execute_batch(sql)?;
        Ok::<_, SessionError>(())
    });
    broken.await.unwrap();
}

#[tokio::test]
async fn a_session_whose_event_cannot_be_written_is_not_written_either() {
    let bench = Bench::new().await;
    bench.webhook_at(&bench.receiver.url()).await;
    let session = bench.gateway.start_session("kept".to_owned()).await.unwrap();
    break_enqueueing(&bench).await;
    bench.gateway.start_session("lost".to_owned()).await.unwrap_err();
    bench.gateway.set_session_status(session.id, SessionStatus::Idle).await.unwrap_err();
    assert_eq!(bench.gateway.sessions(PageRequest::default()).await.unwrap(), [session]);
    assert_eq!(enqueued(&bench).await, 1);
}

#[tokio::test]
async fn only_a_change_is_told() {
    let bench = Bench::new().await;
    bench.webhook_at(&bench.receiver.url()).await;
    let id = bench.gateway.start_session("night shift".to_owned()).await.unwrap().id;
    for (status, told) in [
        (SessionStatus::Active, 1),
        (SessionStatus::Idle, 2),
        (SessionStatus::Idle, 2),
        (SessionStatus::Ended, 3),
        (SessionStatus::Ended, 3),
    ] {
        assert_eq!(bench.gateway.set_session_status(id, status).await.unwrap().status, status);
        assert_eq!(enqueued(&bench).await, told, "{status:?}");
    }
    let again = bench.gateway.set_session_status(id, SessionStatus::Active).await;
    assert!(matches!(again, Err(SessionError::Ended)));
    assert_eq!(enqueued(&bench).await, 3);
}

#[tokio::test]
async fn a_file_is_not_opened_with_another_key_than_its_own() {
    let bench = Bench::new().await;
    let webhook = bench.webhook_at(&bench.receiver.url()).await;
    let mut settings = settings(bench.database());
    Gateway::open(settings.clone()).await.unwrap();
    settings.secret_key = Some(SecretKey::generate());
    let Err(OpenError::Key(error)) = Gateway::open(settings).await else { panic!("it is refused") };
    let error = error.to_string();
    assert!(error.contains("GATEWAY_SECRET_KEY") && error.contains(&webhook.id.to_string()), "{error}");
}
