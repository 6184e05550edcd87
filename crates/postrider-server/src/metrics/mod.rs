//! Figures for Prometheus. There are no tenants, URLs or ids in them, so that everybody may see them; but for those of endpoints, which
//! only who shows a key gets.

mod endpoints;
mod scrape;
mod text;

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use endpoints::EndpointCounts;
pub(crate) use scrape::Scrape;
pub(crate) use text::CONTENT_TYPE;

const PREFIX: &str = "postrider";

/// What this process counts by itself.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) queue_depth: Gauge,
    pub(crate) queue_refused: Counter,
    pub(crate) queue_batch: Histogram,
    pub(crate) endpoints: EndpointCounts,
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<RouteLabels, Histogram>,
    registry: Registry,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    method: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
    method: String,
}

fn request_histogram() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            queue_depth: Gauge::default(),
            queue_refused: Counter::default(),
            queue_batch: Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]),
            endpoints: EndpointCounts::default(),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(request_histogram),
            registry: Registry::with_prefix(PREFIX),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("queue_depth", "Events that wait to be written", self.queue_depth.clone());
        registry.register("queue_refused", "Events sent away because the queue was full", self.queue_refused.clone());
        registry.register("queue_batch_size", "Events written together", self.queue_batch.clone());
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "http_request_duration",
            "Time to the head of the answer",
            Unit::Seconds,
            self.request_duration.clone(),
        );
        let build = Family::<[(&str, &str); 1], Gauge>::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("build_info", "The program's version", build);
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        registry.register_with_unit("process_start_time", "Since the epoch", Unit::Seconds, started);
    }

    /// Counts a request that was answered. What has no route goes under one name, as there is no end of such paths.
    pub(crate) fn answered(&self, route: Option<&str>, method: &Method, status: StatusCode, took: Duration) {
        let route = route.unwrap_or("unknown").to_owned();
        let known =
            [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::PUT, Method::DELETE, Method::OPTIONS];
        let method = if known.contains(method) { method.to_string() } else { "other".to_owned() };
        let labels = RouteLabels { route: route.clone(), method: method.clone() };
        self.request_duration.get_or_create(&labels).observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { route, method, status: status.as_u16() }).inc();
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn text(&self, scrape: Scrape) -> String {
        let mut scraped = Registry::with_prefix(PREFIX);
        scraped.register_collector(Box::new(scrape));
        text::encode([&self.registry, &scraped])
    }
}
