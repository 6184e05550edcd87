//! Endpoints that are looked at and changed: listed, replaced by compare-and-set, with secrets that nobody else can read.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postrider::store::EndpointChange;
use postrider::{
    DeliveryStatus, DestinationPolicy, Endpoint, EndpointFilter, EndpointId, EndpointSettings, EndpointStatus, Keyring,
    NewEvent, PageRequest, RateLimit, RetiringSecret, RetryPolicy, Secret, SecretKey, SignatureScheme, Verdict,
};
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::trial::{Trial, operator, url_of};

fn paid() -> NewEvent {
    NewEvent::new("invoice.paid", "{}")
}

/// Settings in which nothing is left to its default.
fn everything(t: &Trial) -> EndpointSettings {
    EndpointSettings {
        secrets: vec![Secret::generate(), Secret::generate()],
        retiring: vec![RetiringSecret { secret: Secret::generate(), until: t.freeze() + Duration::from_secs(60) }],
        signature: Some(SignatureScheme::default()),
        retry_policy: Some(RetryPolicy::default()),
        max_in_flight: NonZeroU32::new(3),
        rate_limit: Some("100/s".parse::<RateLimit>().unwrap()),
        timeout: Some(Duration::from_millis(1500)),
        headers: vec![("x-team".to_owned(), "billing".to_owned())],
        description: "the billing team's".to_owned(),
    }
}

async fn replace(t: &Trial, endpoint: &Endpoint, change: EndpointChange) -> Option<Endpoint> {
    t.store.replace_endpoint(endpoint, change, &operator()).await.unwrap()
}

async fn listed(t: &Trial, filter: &EndpointFilter, page_size: u32) -> Vec<EndpointId> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = t.store.endpoints(filter, &PageRequest::new(page_size, cursor).unwrap()).await.unwrap();
        assert!(page.items.len() <= page_size as usize, "a page keeps its limit");
        for endpoint in &page.items {
            assert_eq!(t.store.endpoint(endpoint.id).await.unwrap().as_ref(), Some(endpoint), "listed as it is shown");
        }
        all.extend(page.items.iter().map(|endpoint| endpoint.id));
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

pub async fn endpoints_are_listed_newest_first_by_tenant_and_status(t: &Trial) {
    t.freeze();
    let mut made = Vec::new();
    for number in 0..7_usize {
        t.advance_secs(1);
        let tenant = if number.is_multiple_of(2) { "acme" } else { "default" };
        made.push(t.endpoint_of(tenant, &format!("host{number}"), &["*"], everything(t)).await.id);
    }
    t.set_endpoint(made[2], EndpointStatus::Paused).await;
    t.set_endpoint(made[3], EndpointStatus::Disabled).await;
    let those = |numbers: &[usize]| numbers.iter().map(|number| made[*number]).collect::<Vec<_>>();
    let any = EndpointFilter::default();
    assert_eq!(listed(t, &any, 3).await, those(&[6, 5, 4, 3, 2, 1, 0]));
    let acme = EndpointFilter { tenant: Some("acme".to_owned()), ..any.clone() };
    assert_eq!(listed(t, &acme, 2).await, those(&[6, 4, 2, 0]));
    let with = |status| EndpointFilter { status: Some(status), ..any.clone() };
    assert_eq!(listed(t, &with(EndpointStatus::Paused), 2).await, those(&[2]));
    assert_eq!(listed(t, &with(EndpointStatus::Disabled), 2).await, those(&[3]));
    assert_eq!(listed(t, &with(EndpointStatus::Active), 2).await, those(&[6, 5, 4, 1, 0]));
    let both = EndpointFilter { status: Some(EndpointStatus::Active), ..acme };
    assert_eq!(listed(t, &both, 50).await, those(&[6, 4, 0]));
    let nobody = EndpointFilter { tenant: Some("nobody".to_owned()), ..any };
    assert!(listed(t, &nobody, 50).await.is_empty());
}

pub async fn a_replaced_endpoint_is_shown_everywhere_as_it_was_written(t: &Trial) {
    let made = t.endpoint("a", &["invoice.*"]).await;
    assert_eq!(made.revision, 1);
    let waiting = t.enqueue(paid()).await.deliveries()[0].id;
    let url = DestinationPolicy::default().check_url(&url_of("moved")).unwrap().as_str().to_owned();
    let event_types = vec!["refund.*".parse().unwrap(), "invoice.paid".parse().unwrap()];
    let wanted = Endpoint { url, event_types, settings: everything(t), ..made.clone() };
    let replaced = replace(t, &wanted, EndpointChange::Update).await.expect("nobody was faster");
    assert_eq!(replaced, Endpoint { revision: 2, ..wanted });
    assert_eq!(t.other.endpoint(made.id).await.unwrap(), Some(replaced.clone()));

    assert_eq!(t.delivery(waiting).await.destination_url, url_of("a"), "what exists keeps its destination");
    let claim = t.claim_one("w1").await;
    assert_eq!(claim.destination_url, url_of("a"));
    assert_eq!(claim.endpoint.as_deref(), Some(&replaced), "and is treated by the new settings");
    let next = t.enqueue(NewEvent::new("refund.made", "{}")).await;
    assert_eq!(next.deliveries()[0].destination_url, url_of("moved"));
    assert!(t.enqueue(NewEvent::new("invoice.voided", "{}")).await.deliveries().is_empty());
}

pub async fn a_replacement_of_an_older_revision_changes_nothing(t: &Trial) {
    let made = t.endpoint("a", &["*"]).await;
    let with = |description: &str| {
        let settings = EndpointSettings { description: description.to_owned(), ..EndpointSettings::default() };
        Endpoint { settings, ..made.clone() }
    };
    let first = replace(t, &with("first"), EndpointChange::Update).await.unwrap();
    assert_eq!(replace(t, &with("second"), EndpointChange::Update).await, None);
    assert_eq!(t.store.endpoint(made.id).await.unwrap(), Some(first.clone()));
    let second = replace(t, &first, EndpointChange::RotateSecret).await.unwrap();
    assert_eq!(second.revision, 3);
    let stranger = Endpoint { id: EndpointId::from_uuid(Uuid::now_v7()), ..second };
    assert_eq!(replace(t, &stranger, EndpointChange::Update).await, None);
    assert_eq!(t.audit().await.len(), 3, "what was not done is not audited");
}

pub async fn of_two_replacements_at_once_one_takes_effect(t: &Trial) {
    let made = t.endpoint("a", &["*"]).await;
    for round in 0..10 {
        let now = t.store.endpoint(made.id).await.unwrap().unwrap();
        let barrier = Arc::new(Barrier::new(2));
        let racers = [Arc::clone(&t.store), Arc::clone(&t.other)].into_iter().enumerate().map(|(number, store)| {
            let mut wanted = now.clone();
            wanted.settings.description = format!("round {round}, racer {number}");
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                store.replace_endpoint(&wanted, EndpointChange::Update, &operator()).await.unwrap()
            })
        });
        let won: Vec<_> = join_all(racers).await.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(won.len(), 1, "one of two");
        assert_eq!(t.store.endpoint(made.id).await.unwrap().as_ref(), Some(&won[0]));
        assert_eq!(won[0].revision, now.revision + 1);
    }
}

pub async fn a_replacement_keeps_the_status_and_what_attempts_have_shown(t: &Trial) {
    t.freeze();
    let made = t.endpoint("a", &["*"]).await;
    t.enqueue(paid()).await;
    t.claim_and_settle(Verdict::Dead).await;
    let seen = t.store.endpoint(made.id).await.unwrap().unwrap();
    t.set_endpoint(made.id, EndpointStatus::Paused).await;
    let paused = t.store.endpoint(made.id).await.unwrap().unwrap();
    // Whoever looked before the pause must not undo it.
    let replaced = replace(t, &Endpoint { revision: paused.revision, ..seen }, EndpointChange::Update).await.unwrap();
    assert_eq!((replaced.status, replaced.status_reason.as_deref()), (EndpointStatus::Paused, Some("a drill")));
    assert!(replaced.failing_since.is_some() && replaced.failing_since == paused.failing_since);
    assert_eq!(t.store.endpoint(made.id).await.unwrap(), Some(replaced));
}

pub async fn every_change_of_an_endpoint_is_audited_with_its_tenant(t: &Trial) {
    t.freeze();
    let made = t.endpoint_of("acme", "a", &["*"], everything(t)).await;
    let mut endpoint = made.clone();
    for change in [EndpointChange::Update, EndpointChange::RotateSecret, EndpointChange::Reseal] {
        t.advance_secs(1);
        endpoint = replace(t, &endpoint, change).await.unwrap();
    }
    let audit = t.audit().await;
    let actions: Vec<_> = audit.iter().rev().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["endpoint.create", "endpoint.update", "endpoint.rotate_secret", "endpoint.reseal"]);
    for entry in &audit {
        assert_eq!((entry.operator.as_str(), entry.tenant.as_deref()), ("olga", Some("acme")));
        assert_eq!(entry.subject, made.id.to_string());
    }
}

/// What of a secret must not be found anywhere.
fn body(secret: &Secret) -> String {
    secret.reveal().trim_start_matches("whsec_").trim_end_matches('=').to_owned()
}

pub async fn p20_secrets_are_kept_encrypted(t: &Trial) {
    let made = t.endpoint_of("acme", "a", &["*"], everything(t)).await;
    let stored = t.subject().stored_settings(made.id).await;
    for secret in made.settings.secrets.iter().chain([&made.settings.retiring[0].secret]) {
        assert!(!stored.contains(&body(secret)), "a secret lies in the clear");
    }
    assert!(stored.contains("sealed:") && stored.contains("the billing team's"), "only the secrets are sealed");
    assert!(EndpointSettings::is_sealed_with_current_key(&stored, &crate::keyring()));
    assert_eq!(EndpointSettings::from_stored(&stored, &crate::keyring(), "acme").unwrap(), made.settings);
    assert!(
        EndpointSettings::from_stored(&stored, &crate::keyring(), "globex").is_err(),
        "they are bound to their owner"
    );

    let mut rotated = made.clone();
    rotated.settings.rotate(Secret::generate(), t.freeze(), t.freeze() + Duration::from_secs(60));
    let rotated = replace(t, &rotated, EndpointChange::RotateSecret).await.unwrap();
    let stored = t.subject().stored_settings(made.id).await;
    assert!(!stored.contains(&body(&rotated.settings.secrets[0])));
    assert_eq!(t.store.endpoint(made.id).await.unwrap().unwrap().settings, rotated.settings);
}

/// Makes the settings of an endpoint unreadable, in each way there is.
async fn spoil(t: &Trial, damaged: &Endpoint, foreign: &Endpoint) {
    t.subject().overwrite_settings(damaged.id, r#"{"secrets":["#).await;
    let stranger = Keyring::new([SecretKey::generate()]);
    let text = foreign.settings.to_stored(&stranger, &foreign.tenant).unwrap();
    t.subject().overwrite_settings(foreign.id, &text).await;
}

pub async fn an_endpoint_that_cannot_be_read_says_so_and_holds_up_nobody(t: &Trial) {
    let damaged = t.endpoint_of("default", "a", &["*"], everything(t)).await;
    let foreign = t.endpoint_of("default", "b", &["*"], everything(t)).await;
    let sound = t.endpoint_of("default", "c", &["*"], everything(t)).await;
    spoil(t, &damaged, &foreign).await;
    for (id, code) in [(damaged.id, "settings_damaged"), (foreign.id, "secret_key_unknown")] {
        let shown = t.store.endpoint(id).await.unwrap().expect("it is still there");
        let trouble = shown.trouble.expect("it says what is wrong");
        assert!(trouble.contains(code), "{trouble}");
        assert_eq!(shown.settings, EndpointSettings::default(), "without a secret");
    }
    assert_eq!(t.store.endpoint(sound.id).await.unwrap(), Some(sound.clone()));
    let page = t.store.endpoints(&EndpointFilter::default(), &PageRequest::default()).await.unwrap();
    assert_eq!(page.items.len(), 3, "the listing shows them all");

    let enqueued = t.enqueue(paid()).await;
    assert_eq!(enqueued.deliveries().len(), 3, "events keep coming in");
    let bare = t.deliver_to("d").await;
    let claims = t.claim("w1", 10).await;
    let claim_of = |id: EndpointId| claims.iter().find(|claim| claim.endpoint.as_ref().is_some_and(|it| it.id == id));
    assert!(claims.iter().any(|claim| claim.lease.delivery_id == bare));
    assert_eq!(claim_of(sound.id).unwrap().endpoint.as_deref(), Some(&sound));
    for id in [damaged.id, foreign.id] {
        // Whether they are handed out or not is the store's choice. If they are, nobody can take them for sound.
        if let Some(claim) = claim_of(id) {
            assert!(claim.endpoint.as_ref().unwrap().trouble.is_some());
        }
    }
    t.set_endpoint(damaged.id, EndpointStatus::Disabled).await;
    assert_eq!(t.store.endpoint(damaged.id).await.unwrap().unwrap().status, EndpointStatus::Disabled);
}

pub async fn an_endpoint_that_cannot_be_read_is_mended_by_a_replacement(t: &Trial) {
    let damaged = t.endpoint_of("default", "a", &["*"], everything(t)).await;
    let foreign = t.endpoint_of("default", "b", &["*"], everything(t)).await;
    spoil(t, &damaged, &foreign).await;
    for id in [damaged.id, foreign.id] {
        let mut broken = t.store.endpoint(id).await.unwrap().unwrap();
        broken.settings.secrets = vec![Secret::generate()];
        let mended = replace(t, &broken, EndpointChange::RotateSecret).await.expect("nobody was faster");
        assert_eq!((mended.trouble, &mended.settings), (None, &broken.settings));
    }
    assert_eq!(t.enqueue(paid()).await.deliveries().len(), 2);
    assert_eq!(t.claim_and_settle(Verdict::Delivered).await.len(), 2);
    assert!(t.deliveries().await.iter().all(|delivery| delivery.status == DeliveryStatus::Delivered));
}
