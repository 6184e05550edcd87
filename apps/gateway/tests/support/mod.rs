//! A gateway on a file of its own, a real receiver, and a clock that stands still until a test moves it.
#![allow(dead_code, reason = "each test crate uses its part")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use gateway::deliveries::{WebhookDelivery, WebhookDeliveryDetail, WebhookDeliveryFilter};
use gateway::topic::Broadcast;
use gateway::webhooks::{NewWebhook, Webhook};
use gateway::{Gateway, Settings, TopicEvent, TopicSubscription};
use jiff::Timestamp;
use postrider::store::Operator;
use postrider::{DeliveryId, DestinationPolicy, PageRequest};
use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually, within};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What the webhooks of these tests share with their receivers.
pub(crate) const SECRET: &str = "shared between gateway and receiver";

/// When the tests begin, by the store's clock.
pub(crate) const START: &str = "2031-05-01T12:00:00Z";

pub(crate) fn operator() -> Operator {
    Operator("ada".to_owned())
}

pub(crate) fn settings(database: PathBuf) -> Settings {
    Settings {
        database,
        destinations: DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap(),
        poll_interval: Duration::from_millis(20),
        timeout: PATIENCE,
        drain_timeout: PATIENCE,
        ..Settings::default()
    }
}

/// A receiver whose answer can be changed, and a folder for a gateway's file.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) gateway: Gateway,
    pub(crate) receiver: Receiver,
    answer: Arc<AtomicU16>,
    now: Timestamp,
    folder: TempDir,
}

impl Bench {
    /// A new one; its receiver answers with 200.
    pub(crate) async fn new() -> Self {
        let answer = Arc::new(AtomicU16::new(200));
        let script = Arc::clone(&answer);
        let receiver =
            Receiver::start(move |_, _| Answer::status(script.load(Ordering::SeqCst)).body("said the receiver")).await;
        let folder = tempfile::tempdir().unwrap();
        let now = START.parse().unwrap();
        let gateway = open(&folder, now).await;
        Self { gateway, receiver, answer, now, folder }
    }

    /// The same file, opened again by a new gateway.
    pub(crate) async fn restarted(self) -> Self {
        let Self { gateway, receiver, answer, now, folder } = self;
        drop(gateway);
        let gateway = open(&folder, now).await;
        Self { gateway, receiver, answer, now, folder }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("gateway.db")
    }

    pub(crate) fn answers(&self, status: u16) {
        self.answer.store(status, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn travel_to(&mut self, now: Timestamp) {
        self.now = now;
        self.gateway.store().freeze_clock(Some(now));
    }

    pub(crate) async fn webhook_at(&self, target_url: &str) -> Webhook {
        let (target_url, secret) = (target_url.to_owned(), SECRET.to_owned());
        let new = NewWebhook { target_url, secret, event_types: vec!["*".to_owned()] };
        self.gateway.add_webhook(new, &operator()).await.unwrap()
    }

    /// A change of a new session, and its one delivery.
    pub(crate) async fn change(&self) -> WebhookDelivery {
        let session = self.gateway.start_session("a session".to_owned()).await.unwrap();
        let any = WebhookDeliveryFilter::default();
        let newest = self.gateway.deliveries(any, PageRequest::default()).await.unwrap().items.remove(0);
        assert_eq!(newest.session_id, Some(session.id));
        newest
    }

    /// The same with a webhook at the receiver.
    pub(crate) async fn pending(&self) -> WebhookDelivery {
        self.webhook_at(&self.receiver.url()).await;
        self.change().await
    }

    pub(crate) async fn detail(&self, id: DeliveryId) -> WebhookDeliveryDetail {
        self.gateway.delivery(id).await.unwrap().unwrap()
    }

    pub(crate) async fn row(&self, id: DeliveryId) -> WebhookDelivery {
        self.detail(id).await.delivery
    }

    /// Moves the clock to when the row is due, and lets the router make one attempt at it.
    pub(crate) async fn process(&mut self, id: DeliveryId) -> WebhookDelivery {
        let before = self.detail(id).await;
        let due = before.delivery.next_retry_at.expect("a row that is to be processed is due at some time");
        if due > self.now {
            self.travel_to(due);
        }
        let router = Router::start(&self.gateway);
        let settled = eventually("the attempt to be settled", PATIENCE, async || {
            let after = self.detail(id).await;
            (after.attempts.len() > before.attempts.len()).then_some(after.delivery)
        })
        .await;
        router.stop().await;
        settled
    }

    /// A row that has failed so often.
    pub(crate) async fn failed(&mut self, times: u32) -> WebhookDelivery {
        let mut row = self.pending().await;
        self.answers(503);
        for _ in 0..times {
            row = self.process(row.id).await;
        }
        row
    }
}

async fn open(folder: &TempDir, now: Timestamp) -> Gateway {
    let gateway = Gateway::open(settings(folder.path().join("gateway.db"))).await.unwrap();
    gateway.store().freeze_clock(Some(now));
    gateway
}

/// A router that runs.
pub(crate) struct Router {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Router {
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let router = gateway.webhook_router().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async {
            let stopped = async { drop(stopped.await) };
            router.run(stopped).await.unwrap();
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        within("the router to stop", PATIENCE, self.task).await.unwrap();
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// What is broadcast next.
pub(crate) async fn heard(subscription: &mut TopicSubscription) -> TopicEvent {
    match within("a broadcast", PATIENCE, subscription.next()).await {
        Some(Broadcast::Event(event)) => event,
        other => panic!("an event was to be broadcast, not {other:?}"),
    }
}
