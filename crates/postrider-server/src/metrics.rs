//! What can be counted, for Prometheus. There are no tenants, URLs or ids in it.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// What this process counts by itself.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) queue_depth: Gauge,
    pub(crate) queue_refused: Counter,
    pub(crate) queue_batch: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            queue_depth: Gauge::default(),
            queue_refused: Counter::default(),
            queue_batch: Histogram::new([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]),
        }
    }
}
