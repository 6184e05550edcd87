//! What the API does, without HTTP: operations on a store, each for a [`Caller`] and within what is that caller's.

mod audit;
mod deliveries;
mod endpoints;
mod events;
mod key_cache;
mod keys;
mod once;
mod overview;
mod stream;
mod why;

use std::sync::Arc;
use std::time::Duration;

use postrider::store::Operator;
use postrider::{Admission, DEFAULT_TENANT, KeyToken, NewApiKey, NewEvent, RetryPolicy, Scope, Store};

use crate::api::Problem;
use crate::metrics::Metrics;
use crate::queue::{Queue, QueueSettings};
use key_cache::KeyCache;
use overview::OverviewCache;

pub use stream::{Follower, Told};

/// What the operations need to know beside the store.
#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// What an event must satisfy; the same as the store's.
    pub admission: Admission,
    /// How deliveries are retried whose endpoint does not say otherwise.
    pub retry_policy: RetryPolicy,
    /// How long a replaced secret goes on signing beside its successor, unless a rotation says otherwise.
    pub rotation_overlap: Duration,
    /// How concurrent enqueues are gathered.
    pub queue: QueueSettings,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            admission: Admission::default(),
            retry_policy: RetryPolicy::default(),
            rotation_overlap: Duration::from_hours(24),
            queue: QueueSettings::default(),
        }
    }
}

/// Whose things an operation is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenancy {
    /// One tenant's.
    One(String),
    /// Everybody's; for looking only.
    All,
}

impl Tenancy {
    /// The tenant to narrow a store's filter to; none means all.
    pub fn filter(&self) -> Option<&str> {
        match self {
            Self::One(tenant) => Some(tenant),
            Self::All => None,
        }
    }

    /// Whether what belongs to `tenant` may be seen.
    pub fn covers(&self, tenant: &str) -> bool {
        self.filter().is_none_or(|own| own == tenant)
    }
}

/// Who wants something done, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose things this is about.
    pub tenant: Tenancy,
    /// Who, for the audit trail.
    pub operator: Operator,
    /// Whether the caller may choose any tenant, whichever was chosen this time.
    pub any_tenant: bool,
}

impl Caller {
    /// Somebody with the database at hand, who may do everything.
    pub fn operator(tenant: Tenancy, operator: impl Into<String>) -> Self {
        Self { tenant, operator: Operator(operator.into()), any_tenant: true }
    }

    /// The one tenant for whom something is to be changed.
    pub fn tenant_for_write(&self) -> Result<&str, Problem> {
        self.tenant.filter().ok_or_else(|| {
            Problem::new(422, "tenant_ambiguous", "all tenants at once can be looked at, but not changed")
                .hint("name one tenant in the header `Postrider-Tenant`")
        })
    }
}

impl Default for Caller {
    fn default() -> Self {
        Self::operator(Tenancy::One(DEFAULT_TENANT.to_owned()), "operator")
    }
}

/// Operations on a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Service(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    settings: ServiceSettings,
    metrics: Arc<Metrics>,
    queue: Queue,
    /// For events that may have to wait for somebody else's transaction: they would hold up those that need not.
    contended: Queue,
    keys: KeyCache,
    overviews: OverviewCache,
}

impl Inner {
    fn queue_for(&self, event: &NewEvent) -> &Queue {
        if event.idempotency_key.is_some() || event.once.is_some() { &self.contended } else { &self.queue }
    }
}

impl Service {
    /// Operations on this store.
    pub fn new(store: Arc<dyn Store>, settings: ServiceSettings) -> Self {
        let metrics = Arc::new(Metrics::default());
        let queue = || Queue::new(Arc::clone(&store), settings.queue.clone(), Arc::clone(&metrics));
        let (queue, contended) = (queue(), queue());
        Self(Arc::new(Inner {
            store,
            settings,
            metrics,
            queue,
            contended,
            keys: KeyCache::default(),
            overviews: OverviewCache::default(),
        }))
    }

    /// The store that it works on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// What it was told.
    pub fn settings(&self) -> &ServiceSettings {
        &self.0.settings
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// Returns when nothing is waiting to be written any more.
    pub async fn flush(&self) {
        self.0.queue.flushed().await;
        self.0.contended.flushed().await;
    }

    /// Makes an admin key for all tenants if there has never been any key. Its text is shown this once.
    pub async fn ensure_first_key(&self) -> Result<Option<KeyToken>, Problem> {
        let token = KeyToken::generate();
        let key = NewApiKey {
            name: "first".to_owned(),
            tenant: None,
            scope: Scope::Admin,
            digest: token.digest(),
            only_first: true,
        };
        let made = self.0.store.create_key(key, &Operator("postrider".to_owned())).await?;
        Ok(made.map(|_| token))
    }
}
