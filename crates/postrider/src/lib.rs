//! Postrider's engine: webhooks delivered surely, signed, in time, once per change.
//!
//! An **event** is written in the caller's transaction together with one **delivery** per destination; a **dispatcher**
//! takes due deliveries under a **lease**, makes one **attempt** each, and **settles** the result, which consumes the
//! lease.
//!
//! This crate knows no SQL dialect and no web framework. `postrider-postgres` and `postrider-sqlite` implement its one
//! trait, [`Store`]; everything else here is data, functions, or the real thing.

pub mod announcement;
pub mod api_key;
pub mod delivery;
pub mod destination;
pub mod dispatcher;
pub mod duration;
pub mod endpoint;
pub mod event;
#[cfg(feature = "failpoints")]
#[doc(hidden)]
pub mod failpoint;
pub mod headers;
pub mod ids;
pub mod keyring;
pub mod lease;
pub mod once;
pub mod outcome;
mod payload;
pub mod rate_limit;
pub mod refusal;
pub mod retry;
pub mod retry_after;
pub mod secret;
pub mod signature;
pub mod store;
pub mod transport;
pub mod why;

pub use announcement::{Announcement, Fact, Feed, Heard, Subscription};
pub use api_key::{ApiKey, KeyDigest, KeyToken, NewApiKey, Scope};
pub use delivery::{Attempt, Cursor, Delivery, DeliveryDetail, DeliveryFilter, DeliveryStatus, Page, PageRequest};
pub use destination::{Destination, DestinationPolicy};
pub use dispatcher::{Dispatcher, DispatcherBuilder, InvalidDispatcher, Monitor, Totals};
pub use endpoint::{
    Endpoint, EndpointFilter, EndpointSettings, EndpointStatus, EventTypePattern, NewEndpoint, RetiringSecret,
};
pub use event::{
    Admission, AdmittedEvent, DEFAULT_TENANT, DEFAULT_TOPIC, EnqueueError, Enqueued, EnqueuedDelivery, Event,
    EventDelivery, EventFilter, Metadata, NewEvent,
};
pub use ids::{DeliveryId, EndpointId, EventId, InvalidId, KeyId};
pub use keyring::{InvalidSecretKey, Keyring, KeyringError, SecretKey};
pub use lease::{InvalidLease, InvalidWorkerId, Lease, LeaseTerm, LeaseToken, WorkerId};
pub use once::{Once, OnceClaim, OnceCursor, OnceFilter, OncePage, OnceWinner};
pub use outcome::{Outcome, OutcomeKind, Phase, Response, Verdict, verdict};
pub use rate_limit::RateLimit;
pub use refusal::Refusal;
pub use retry::RetryPolicy;
pub use retry_after::retry_after;
pub use secret::{InvalidSecret, Secret};
pub use signature::SignatureScheme;
pub use store::{Store, StoreError, StoreErrorCode};
pub use transport::{Post, Transport, TransportConfig, TransportError};
pub use why::{Why, WhyInput, why};
