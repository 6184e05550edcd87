//! API keys: recognised by their digest, for one tenant or for all, and open nothing once they are revoked.

use std::sync::Arc;

use futures_util::future::join_all;
use postrider::{ApiKey, KeyId, KeyToken, NewApiKey, PageRequest, Scope};
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::trial::{Trial, operator};

fn key(name: &str, tenant: Option<&str>, token: &KeyToken) -> NewApiKey {
    NewApiKey {
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        scope: Scope::Write,
        digest: token.digest(),
        only_first: false,
    }
}

async fn create(t: &Trial, name: &str, tenant: Option<&str>) -> (ApiKey, KeyToken) {
    let token = KeyToken::generate();
    let created = t.store.create_key(key(name, tenant, &token), &operator()).await.unwrap();
    (created.expect("it need not be the first"), token)
}

async fn listed(t: &Trial, tenant: Option<&str>, page_size: u32) -> Vec<ApiKey> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = t.store.keys(tenant, &PageRequest::new(page_size, cursor).unwrap()).await.unwrap();
        assert!(page.items.len() <= page_size as usize, "a page keeps its limit");
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

pub async fn a_key_is_found_by_its_digest_as_it_was_made(t: &Trial) {
    let now = t.freeze();
    for (tenant, scope) in [(None, Scope::Admin), (Some("acme"), Scope::Read), (Some("acme"), Scope::Write)] {
        let token = KeyToken::generate();
        let new = NewApiKey { scope, ..key("the billing team's", tenant, &token) };
        let made = t.store.create_key(new, &operator()).await.unwrap().unwrap();
        assert_eq!((made.name.as_str(), made.tenant.as_deref()), ("the billing team's", tenant));
        assert_eq!((made.scope, made.created_at, made.revoked_at), (scope, now, None));
        assert_eq!(t.other.key_of_digest(&token.digest()).await.unwrap(), Some(made));
    }
    assert_eq!(t.store.key_of_digest(&KeyToken::generate().digest()).await.unwrap(), None);
}

pub async fn a_revoked_key_is_not_found_any_more_and_stays_listed(t: &Trial) {
    t.freeze();
    let (made, token) = create(t, "one", Some("acme")).await;
    let (other, other_token) = create(t, "two", Some("acme")).await;
    let now = t.advance_secs(9);
    assert!(t.other.revoke_key(made.id, Some("acme"), &operator()).await.unwrap());
    assert_eq!(t.store.key_of_digest(&token.digest()).await.unwrap(), None);
    assert_eq!(t.store.key_of_digest(&other_token.digest()).await.unwrap(), Some(other));
    t.advance_secs(9);
    assert!(!t.store.revoke_key(made.id, Some("acme"), &operator()).await.unwrap(), "there is none left to revoke");
    let listed = listed(t, None, 10).await;
    let revoked = listed.iter().find(|key| key.id == made.id).expect("revoked keys are listed");
    assert_eq!(revoked.revoked_at, Some(now));
}

pub async fn p21_a_tenant_revokes_no_key_but_its_own(t: &Trial) {
    let (theirs, token) = create(t, "theirs", Some("acme")).await;
    let (for_all, all_token) = create(t, "for all", None).await;
    for id in [theirs.id, for_all.id, KeyId::from_uuid(Uuid::now_v7())] {
        assert!(!t.store.revoke_key(id, Some("globex"), &operator()).await.unwrap());
    }
    for token in [&token, &all_token] {
        assert!(t.store.key_of_digest(&token.digest()).await.unwrap().is_some());
    }
    assert!(t.audit().await.iter().all(|entry| entry.action == "key.create"), "what was not done is not audited");
    assert!(t.store.revoke_key(theirs.id, None, &operator()).await.unwrap(), "whoever acts for all may");
    assert!(t.store.revoke_key(for_all.id, None, &operator()).await.unwrap());
}

pub async fn keys_are_listed_newest_first_in_pages_by_tenant(t: &Trial) {
    t.freeze();
    let mut made = Vec::new();
    for number in 0..7_u32 {
        t.advance_secs(1);
        let tenant = [Some("acme"), Some("globex"), None][number as usize % 3];
        made.push(create(t, &format!("key {number}"), tenant).await.0);
    }
    made.reverse();
    assert_eq!(listed(t, None, 3).await, made);
    let of =
        |tenant: &str| made.iter().filter(|key| key.tenant.as_deref() == Some(tenant)).cloned().collect::<Vec<_>>();
    assert_eq!(listed(t, Some("acme"), 2).await, of("acme"));
    assert_eq!(listed(t, Some("globex"), 2).await, of("globex"));
    assert!(listed(t, Some("nobody"), 2).await.is_empty());
}

pub async fn of_eight_that_want_to_be_the_first_key_one_is(t: &Trial) {
    let barrier = Arc::new(Barrier::new(8));
    let racers: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            let barrier = Arc::clone(&barrier);
            let new = NewApiKey { only_first: true, ..key("the first", None, &KeyToken::generate()) };
            tokio::spawn(async move {
                barrier.wait().await;
                store.create_key(new, &operator()).await.expect("to be late is no error")
            })
        })
        .collect();
    let made: Vec<_> = join_all(racers).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(listed(t, None, 50).await, made);
    assert_eq!(t.audit().await.len(), 1, "what was not made is not audited");
}

pub async fn the_first_key_is_the_first_also_when_it_is_revoked(t: &Trial) {
    let first = || NewApiKey { only_first: true, ..key("the first", None, &KeyToken::generate()) };
    let (made, _) = create(t, "an ordinary one", Some("acme")).await;
    assert_eq!(t.store.create_key(first(), &operator()).await.unwrap(), None);
    assert!(t.store.revoke_key(made.id, None, &operator()).await.unwrap());
    assert_eq!(t.store.create_key(first(), &operator()).await.unwrap(), None);
    create(t, "another", None).await;
}

pub async fn what_is_done_to_keys_is_audited_with_their_tenant(t: &Trial) {
    let now = t.freeze();
    let (theirs, token) = create(t, "theirs", Some("acme")).await;
    t.advance_secs(1);
    let (for_all, _) = create(t, "for all", None).await;
    t.advance_secs(1);
    t.store.revoke_key(theirs.id, Some("acme"), &operator()).await.unwrap();
    let audit = t.audit().await;
    let told: Vec<_> = audit
        .iter()
        .rev()
        .map(|entry| (entry.action.as_str(), entry.subject.clone(), entry.tenant.as_deref()))
        .collect();
    let (theirs, for_all) = (theirs.id.to_string(), for_all.id.to_string());
    assert_eq!(
        told,
        [
            ("key.create", theirs.clone(), Some("acme")),
            ("key.create", for_all, None),
            ("key.revoke", theirs, Some("acme"))
        ]
    );
    assert!(audit.iter().all(|entry| entry.operator == "olga"));
    assert_eq!(audit[2].at, now);
    assert!(!format!("{audit:?}").contains(token.reveal()), "p20");
}
