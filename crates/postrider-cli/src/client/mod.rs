//! What client commands ask: a server over HTTP, or the service straight on a database.
//!
//! Both answer with the same types, so that `--json` prints the same document whichever it was. Who has the database at
//! hand may do everything; a server decides by the key.

mod direct;
pub(crate) mod http;

use std::sync::Arc;

use clap::Args;
use postrider::{DeliveryId, EndpointId, EventId, KeyId, Store};
use postrider_server::api::Listing;
use postrider_server::api::deliveries::{
    BulkRetried, BulkRetry, CancelRequest, Delivery, DeliveryDetail, DeliveryQuery,
};
use postrider_server::api::endpoints::{
    Endpoint, EndpointPatch, EndpointQuery, EndpointWithSecret, NewEndpoint, PauseRequest, RotateRequest,
};
use postrider_server::api::events::{EnqueuedEvent, Event, EventRequest, EventsQuery};
use postrider_server::api::keys::{CreatedKey, Key, NewKey, PageQuery};
use postrider_server::api::once::{OnceClaim, OnceQuery};
use postrider_server::api::why::Why;

use self::direct::Direct;
use self::http::{HttpClient, Request};
use crate::commands::Context;
use crate::config::{Config, Flags};
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::TenantFlag;
use crate::operator::OperatorFlag;

/// Whom a command asks.
pub(crate) enum Client {
    /// A server.
    Server(HttpClient),
    /// The service, in this process.
    Database(Direct),
}

/// For commands that look.
#[derive(Debug, Args)]
pub(crate) struct LookFlags {
    #[command(flatten)]
    pub(crate) tenant: TenantFlag,
}

/// For commands that act.
#[derive(Debug, Args)]
pub(crate) struct ActFlags {
    #[command(flatten)]
    pub(crate) tenant: TenantFlag,
    #[command(flatten)]
    pub(crate) operator: OperatorFlag,
}

impl LookFlags {
    /// The client of a command that only looks.
    pub(crate) async fn client(&self, context: &Context) -> Result<Client, Failure> {
        let config = context.config(Flags::new())?;
        Client::open(&config, Preparation::Existing, self.tenant.tenant.as_deref(), &OperatorFlag::default()).await
    }
}

impl ActFlags {
    /// The client of a command that acts on what is there.
    pub(crate) async fn client(&self, context: &Context) -> Result<Client, Failure> {
        let config = context.config(Flags::new())?;
        Client::open(&config, Preparation::Existing, self.tenant.tenant.as_deref(), &self.operator).await
    }

    /// The client of a command that writes an endpoint's settings, and with them its secrets. On a database the key must be
    /// the right one: a secret that is sealed with another is lost to every dispatcher.
    pub(crate) async fn sealing_client(&self, config: &Config, preparation: Preparation) -> Result<Client, Failure> {
        let store = async || config.database.open_for_work(config, preparation).await;
        Client::open_with(config, self.tenant.tenant.as_deref(), &self.operator, store).await
    }
}

/// Refuses flags that set what only a server's own configuration decides; to pass over them would look as if they held.
pub(crate) fn refuse_with_server(config: &Config, flags: &Flags) -> Result<(), Failure> {
    match flags.first() {
        Some((key, _)) if config.server.is_some() => {
            let message = format!("{} has no meaning with a server, which has a configuration of its own", key.flag());
            Err(Failure::new(Exit::Usage, "usage", message).hint("leave it out, or name a --database"))
        }
        _ => Ok(()),
    }
}

impl Client {
    /// Whoever the configuration says is to be asked.
    pub(crate) async fn open(
        config: &Config,
        preparation: Preparation,
        tenant: Option<&str>,
        operator: &OperatorFlag,
    ) -> Result<Self, Failure> {
        let store = async || config.database.open(config, preparation).await;
        Self::open_with(config, tenant, operator, store).await
    }

    async fn open_with(
        config: &Config,
        tenant: Option<&str>,
        operator: &OperatorFlag,
        store: impl AsyncFnOnce() -> Result<Arc<dyn Store>, Failure>,
    ) -> Result<Self, Failure> {
        let Some(server) = &config.server else {
            let operator = operator.operator()?;
            return Ok(Self::Database(Direct::new(store().await?, config, tenant, operator)));
        };
        if operator.is_given() {
            let message = "--operator has no meaning with a server, which knows by the key who acts";
            return Err(Failure::new(Exit::Usage, "usage", message).hint("leave it out, or name a --database"));
        }
        Ok(Self::Server(HttpClient::new(server.clone(), config.api_key.as_ref(), tenant)?))
    }

    /// Enqueues one event.
    pub(crate) async fn send(&self, event: EventRequest) -> Result<EnqueuedEvent, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(["events"]).json(&event)).await,
            Self::Database(direct) => direct.send(event).await,
        }
    }

    /// One page of events.
    pub(crate) async fn events(&self, query: &EventsQuery) -> Result<Listing<Event>, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["events"]).query(query)).await,
            Self::Database(direct) => direct.events(query).await,
        }
    }

    /// One event with its payload and deliveries.
    pub(crate) async fn event(&self, id: EventId) -> Result<Event, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["events".to_owned(), id.to_string()])).await,
            Self::Database(direct) => direct.event(id).await,
        }
    }

    /// One page of deliveries.
    pub(crate) async fn deliveries(&self, query: &DeliveryQuery) -> Result<Listing<Delivery>, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["deliveries"]).query(query)).await,
            Self::Database(direct) => direct.deliveries(query).await,
        }
    }

    /// One delivery with its attempts.
    pub(crate) async fn delivery(&self, id: DeliveryId) -> Result<DeliveryDetail, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["deliveries".to_owned(), id.to_string()])).await,
            Self::Database(direct) => direct.delivery(id).await,
        }
    }

    /// Makes one delivery due now.
    pub(crate) async fn retry(&self, id: DeliveryId) -> Result<DeliveryDetail, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(delivery_path(id, "retry"))).await,
            Self::Database(direct) => direct.retry(id).await,
        }
    }

    /// Makes deliveries that match due now.
    pub(crate) async fn retry_matching(&self, which: &BulkRetry) -> Result<BulkRetried, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(["deliveries", "retry"]).json(which)).await,
            Self::Database(direct) => direct.retry_matching(which).await,
        }
    }

    /// Stops one delivery.
    pub(crate) async fn cancel(&self, id: DeliveryId, reason: &CancelRequest) -> Result<DeliveryDetail, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(delivery_path(id, "cancel")).json(reason)).await,
            Self::Database(direct) => direct.cancel(id, reason).await,
        }
    }

    /// Why a delivery is as it is.
    pub(crate) async fn why(&self, id: DeliveryId) -> Result<Why, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(delivery_path(id, "why"))).await,
            Self::Database(direct) => direct.why(id).await,
        }
    }

    /// Registers an endpoint.
    pub(crate) async fn create_endpoint(&self, endpoint: NewEndpoint) -> Result<EndpointWithSecret, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(["endpoints"]).json(&endpoint)).await,
            Self::Database(direct) => direct.create_endpoint(endpoint).await,
        }
    }

    /// One page of endpoints.
    pub(crate) async fn endpoints(&self, query: &EndpointQuery) -> Result<Listing<Endpoint>, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["endpoints"]).query(query)).await,
            Self::Database(direct) => direct.endpoints(query).await,
        }
    }

    /// One endpoint.
    pub(crate) async fn endpoint(&self, id: EndpointId) -> Result<Endpoint, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["endpoints".to_owned(), id.to_string()])).await,
            Self::Database(direct) => direct.endpoint(id).await,
        }
    }

    /// Changes an endpoint.
    pub(crate) async fn update_endpoint(&self, id: EndpointId, patch: EndpointPatch) -> Result<Endpoint, Failure> {
        match self {
            Self::Server(server) => {
                server.send(Request::patch(["endpoints".to_owned(), id.to_string()]).json(&patch)).await
            }
            Self::Database(direct) => direct.update_endpoint(id, patch).await,
        }
    }

    /// Holds an endpoint's deliveries back.
    pub(crate) async fn pause_endpoint(&self, id: EndpointId, reason: PauseRequest) -> Result<Endpoint, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(endpoint_path(id, "pause")).json(&reason)).await,
            Self::Database(direct) => direct.pause_endpoint(id, reason).await,
        }
    }

    /// Lets an endpoint's deliveries go.
    pub(crate) async fn resume_endpoint(&self, id: EndpointId) -> Result<Endpoint, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(endpoint_path(id, "resume"))).await,
            Self::Database(direct) => direct.resume_endpoint(id).await,
        }
    }

    /// Replaces an endpoint's secret.
    pub(crate) async fn rotate_secret(
        &self,
        id: EndpointId,
        how: RotateRequest,
    ) -> Result<EndpointWithSecret, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(endpoint_path(id, "rotate-secret")).json(&how)).await,
            Self::Database(direct) => direct.rotate_secret(id, how).await,
        }
    }

    /// Sends an endpoint an event for trying out.
    pub(crate) async fn test_endpoint(&self, id: EndpointId) -> Result<EnqueuedEvent, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(endpoint_path(id, "test"))).await,
            Self::Database(direct) => direct.test_endpoint(id).await,
        }
    }

    /// Removes an endpoint.
    pub(crate) async fn remove_endpoint(&self, id: EndpointId) -> Result<(), Failure> {
        match self {
            Self::Server(server) => server.send_only(Request::delete(["endpoints".to_owned(), id.to_string()])).await,
            Self::Database(direct) => direct.remove_endpoint(id).await,
        }
    }

    /// How a subject stands.
    pub(crate) async fn once(&self, subject: &str) -> Result<OnceClaim, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["once", subject])).await,
            Self::Database(direct) => direct.once(subject).await,
        }
    }

    /// One page of subjects.
    pub(crate) async fn once_claims(&self, query: &OnceQuery) -> Result<Listing<OnceClaim>, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["once"]).query(query)).await,
            Self::Database(direct) => direct.once_claims(query).await,
        }
    }

    /// Begins the next generation of a subject.
    pub(crate) async fn reset_once(&self, subject: &str) -> Result<OnceClaim, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(["once", subject, "reset"])).await,
            Self::Database(direct) => direct.reset_once(subject).await,
        }
    }

    /// Makes a key.
    pub(crate) async fn create_key(&self, key: NewKey) -> Result<CreatedKey, Failure> {
        match self {
            Self::Server(server) => server.send(Request::post(["keys"]).json(&key)).await,
            Self::Database(direct) => direct.create_key(key).await,
        }
    }

    /// One page of keys, also revoked ones.
    pub(crate) async fn keys(&self, query: &PageQuery) -> Result<Listing<Key>, Failure> {
        match self {
            Self::Server(server) => server.send(Request::get(["keys"]).query(query)).await,
            Self::Database(direct) => direct.keys(query).await,
        }
    }

    /// Revokes a key.
    pub(crate) async fn revoke_key(&self, id: KeyId) -> Result<(), Failure> {
        match self {
            Self::Server(server) => server.send_only(Request::delete(["keys".to_owned(), id.to_string()])).await,
            Self::Database(direct) => direct.revoke_key(id).await,
        }
    }
}

fn delivery_path(id: DeliveryId, action: &str) -> [String; 3] {
    ["deliveries".to_owned(), id.to_string(), action.to_owned()]
}

fn endpoint_path(id: EndpointId, action: &str) -> [String; 3] {
    ["endpoints".to_owned(), id.to_string(), action.to_owned()]
}
