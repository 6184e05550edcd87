//! What a dispatcher is told, checked as a whole before it exists.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;

use super::Dispatcher;
use crate::destination::DestinationPolicy;
use crate::lease::{InvalidLease, LeaseTerm, WorkerId};
use crate::retry::RetryPolicy;
use crate::secret::Secret;
use crate::signature::SignatureScheme;
use crate::store::Store;
use crate::transport::{Transport, TransportConfig, TransportError};

/// What a dispatcher works by. Only a builder makes one, so its values fit together.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) worker: WorkerId,
    pub(crate) term: LeaseTerm,
    pub(crate) poll_interval: Duration,
    pub(crate) max_in_flight: u32,
    pub(crate) max_in_flight_per_destination: u32,
    pub(crate) timeout: Duration,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) signing_secrets: Vec<Secret>,
    pub(crate) signature: SignatureScheme,
    pub(crate) event_id_header: Option<HeaderName>,
    pub(crate) attempt_header: Option<HeaderName>,
    pub(crate) drain_timeout: Duration,
    pub(crate) max_abandoned: u32,
    pub(crate) disable_after: Option<Duration>,
    pub(crate) retention: Option<Duration>,
    pub(crate) enabled: bool,
}

/// Puts a [`Dispatcher`] together. Every value has the default of the configuration reference.
#[derive(Debug)]
#[must_use]
pub struct DispatcherBuilder {
    store: Arc<dyn Store>,
    lease: Duration,
    settings: Settings,
    transport: TransportConfig,
}

/// A setting that cannot hold.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDispatcher {
    /// No heartbeat can keep such a lease.
    #[error(transparent)]
    Lease(#[from] InvalidLease),
    /// A number or duration outside of its range.
    #[error("{name}_invalid: {name} is {range}, not {value}")]
    OutOfRange {
        /// Which setting.
        name: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it was.
        value: String,
    },
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl DispatcherBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            lease: LeaseTerm::default().lease(),
            settings: Settings {
                worker: WorkerId::random(),
                term: LeaseTerm::default(),
                poll_interval: Duration::from_secs(1),
                max_in_flight: 512,
                max_in_flight_per_destination: 64,
                timeout: Duration::from_secs(15),
                retry_policy: RetryPolicy::default(),
                signing_secrets: Vec::new(),
                signature: SignatureScheme::default(),
                event_id_header: None,
                attempt_header: None,
                drain_timeout: Duration::from_secs(30),
                max_abandoned: 10,
                disable_after: Some(Duration::from_hours(5 * 24)),
                retention: None,
                enabled: true,
            },
            transport: TransportConfig::default(),
        }
    }

    /// The name under which it holds leases. Must be new at each start; the default is.
    pub fn worker_id(mut self, worker: WorkerId) -> Self {
        self.settings.worker = worker;
        self
    }

    /// How long a crashed dispatcher's deliveries wait. Heartbeats keep it alive while an attempt is under way.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How often to look for work without having been woken.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How many attempts are under way at most.
    pub fn max_in_flight(mut self, count: u32) -> Self {
        self.settings.max_in_flight = count;
        self
    }

    /// How many of them go to one destination.
    pub fn max_in_flight_per_destination(mut self, count: u32) -> Self {
        self.settings.max_in_flight_per_destination = count;
        self
    }

    /// For one whole attempt, from the name's look-up to the end of the response.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// For becoming connected, within the timeout.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.transport.connect_timeout = timeout;
        self
    }

    /// When to try again, where an endpoint has no policy of its own.
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry_policy = policy;
        self
    }

    /// What signs deliveries to bare destinations; the newest first while rotating.
    pub fn signing_secrets(mut self, secrets: Vec<Secret>) -> Self {
        self.settings.signing_secrets = secrets;
        self
    }

    /// How deliveries are signed, where an endpoint does not say otherwise.
    pub fn signature(mut self, scheme: SignatureScheme) -> Self {
        self.settings.signature = scheme;
        self
    }

    /// Says the event's id in this header as well, for receivers that look there, such as `Idempotency-Key`. It replaces none
    /// of the headers that every request has.
    pub fn event_id_header(mut self, name: HeaderName) -> Self {
        self.settings.event_id_header = Some(name);
        self
    }

    /// Says the number of the attempt, counted from 1, in this header as well. It replaces none of the headers that every
    /// request has.
    pub fn attempt_header(mut self, name: HeaderName) -> Self {
        self.settings.attempt_header = Some(name);
        self
    }

    /// Which destinations may be dialled.
    pub fn destinations(mut self, policy: DestinationPolicy) -> Self {
        self.transport.destinations = policy;
        self
    }

    /// Disables an endpoint whose attempts have all failed for this long (1s to 3650d); `None` never does. The default is
    /// five days, which is longer than the default schedule takes.
    pub fn disable_after(mut self, failing_for: Option<Duration>) -> Self {
        self.settings.disable_after = failing_for;
        self
    }

    /// Removes events of which every delivery is delivered or cancelled once they are older than this (1m to 36500d), in
    /// small steps beside the deliveries; `None`, the default, keeps everything. Dead letters and whatever is unsettled
    /// are never removed.
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Name servers to ask; none means the system's.
    pub fn name_servers(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.transport.name_servers = addresses;
        self
    }

    /// How much of a response's body is kept in the attempt's record.
    pub fn kept_response_bytes(mut self, bytes: usize) -> Self {
        self.transport.kept_response_bytes = bytes;
        self
    }

    /// The HTTP client's remaining settings: extra certificate roots, name servers, pool size. Sets also what
    /// [`connect_timeout`](Self::connect_timeout), [`destinations`](Self::destinations),
    /// [`name_servers`](Self::name_servers) and [`kept_response_bytes`](Self::kept_response_bytes) set.
    pub fn transport(mut self, config: TransportConfig) -> Self {
        self.transport = config;
        self
    }

    /// How long to wait, when told to stop, for attempts that are under way.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How many claims in a row may expire unsettled before a delivery is dead.
    pub fn max_abandoned(mut self, count: u32) -> Self {
        self.settings.max_abandoned = count;
        self
    }

    /// Whether it dispatches at all. Enqueueing does not care.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.settings.enabled = enabled;
        self
    }

    /// The dispatcher, or the first setting that cannot hold.
    pub fn build(self) -> Result<Dispatcher, InvalidDispatcher> {
        let mut settings = self.settings;
        settings.term = LeaseTerm::new(self.lease)?;
        let (ms, hour) = (Duration::from_millis, Duration::from_hours(1));
        in_range("poll_interval", "10ms to 1h", &settings.poll_interval, ms(10)..=hour)?;
        in_range("timeout", "1ms to 1h", &settings.timeout, ms(1)..=hour)?;
        in_range("connect_timeout", "1ms to 1h", &self.transport.connect_timeout, ms(1)..=hour)?;
        in_range("drain_timeout", "0s to 24h", &settings.drain_timeout, Duration::ZERO..=hour * 24)?;
        in_range("max_in_flight", "1 to 100000", &settings.max_in_flight, 1..=100_000)?;
        let per_destination = &settings.max_in_flight_per_destination;
        in_range("max_in_flight_per_destination", "1 to 100000", per_destination, 1..=100_000)?;
        in_range("max_abandoned", "1 to 1000", &settings.max_abandoned, 1..=1000)?;
        in_range("kept_response_bytes", "0 to 1048576", &self.transport.kept_response_bytes, 0..=1_048_576)?;
        let day = hour * 24;
        if let Some(disable_after) = &settings.disable_after {
            in_range("disable_after", "1s to 3650d", disable_after, ms(1000)..=day * 3650)?;
        }
        if let Some(retention) = &settings.retention {
            in_range("retention", "1m to 36500d", retention, ms(60_000)..=day * 36_500)?;
        }
        let transport = Transport::new(self.transport)?;
        Ok(Dispatcher::assemble(self.store, transport, settings))
    }
}

fn in_range<T: PartialOrd + fmt::Debug>(
    name: &'static str,
    range: &'static str,
    value: &T,
    bounds: RangeInclusive<T>,
) -> Result<(), InvalidDispatcher> {
    if bounds.contains(value) {
        Ok(())
    } else {
        Err(InvalidDispatcher::OutOfRange { name, range, value: format!("{value:?}") })
    }
}
