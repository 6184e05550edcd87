//! What is asked for when somebody looks: how everything stands, what the dispatcher has done, the pool.

use std::fmt::Error;

use postrider::store::Connections;
use postrider::{OutcomeKind, Totals};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::api::overview::Overview;

/// What could be found out in time.
#[derive(Debug)]
pub(crate) struct Scrape {
    /// How everything stands.
    pub(crate) overview: Option<Overview>,
    /// The pool.
    pub(crate) connections: Option<Connections>,
    /// Whether the store can be worked with.
    pub(crate) store_up: bool,
    /// What the dispatcher in this process has done, and how many leases it holds.
    pub(crate) dispatcher: Option<(Totals, usize)>,
    /// Endpoints, results, and how often.
    pub(crate) endpoints: Vec<(String, &'static str, u64)>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut to = To(&mut encoder);
        to.gauge(
            "store_up",
            "Whether the database answers and has the right schema",
            f64::from(u8::from(self.store_up)),
        )?;
        if let Some(overview) = &self.overview {
            encode_overview(&mut to, overview)?;
        }
        if let Some(connections) = &self.connections {
            let Connections { open, idle, most } = *connections;
            let used = open.saturating_sub(idle);
            let values = [("used", used), ("idle", idle)].map(|(name, value)| (name, u64::from(value)));
            to.gauges("pool_connections", "Connections to the database", "state", values)?;
            to.gauge("pool_connections_max", "How many connections to the database there may be", f64::from(most))?;
        }
        if let Some((totals, in_flight)) = &self.dispatcher {
            encode_dispatcher(&mut to, totals, *in_flight)?;
        }
        to.endpoints(&self.endpoints)
    }
}

fn encode_overview(to: &mut To<'_, '_>, overview: &Overview) -> Result<(), Error> {
    let statuses = [
        ("pending", overview.pending),
        ("failed", overview.failed),
        ("delivered", overview.delivered),
        ("dead", overview.dead),
        ("cancelled", overview.cancelled),
    ];
    to.gauges("deliveries", "Deliveries that are kept, by status", "status", statuses)?;
    to.gauge("deliveries_due", "Deliveries that are ready to be attempted", count(overview.due))?;
    to.gauge("deliveries_in_flight", "Deliveries that some dispatcher attempts", count(overview.in_flight))?;
    to.gauge("deliveries_scheduled", "Deliveries that wait for their time", count(overview.scheduled))?;
    let age = count(overview.oldest_due_age_ms.unwrap_or_default()) / 1_000.0;
    to.gauge("oldest_due_age_seconds", "How long the oldest delivery that is due has been so", age)
}

fn encode_dispatcher(to: &mut To<'_, '_>, totals: &Totals, in_flight: usize) -> Result<(), Error> {
    let classes = [
        ("2xx", totals.responses_2xx),
        ("3xx", totals.responses_3xx),
        ("4xx", totals.responses_4xx),
        ("5xx", totals.responses_5xx),
        ("none", totals.network_failures),
    ];
    let outcomes = OutcomeKind::ALL.map(|kind| (kind.as_str(), totals.outcome(kind)));
    to.counters("attempts", "Attempts made here, by outcome", "outcome", outcomes)?;
    to.counters("attempt_responses", "Attempts made here, by class of the answer's status", "class", classes)?;
    to.attempt_duration(totals)?;
    let settled = [("delivered", totals.delivered), ("retry", totals.retried), ("dead", totals.dead)];
    to.counters("settled", "Attempts settled here, by verdict", "verdict", settled)?;
    to.counter("claimed", "Deliveries taken under a lease here", totals.claimed)?;
    to.counter("released", "Leases given back unused", totals.released)?;
    to.counter("leases_lost", "Attempts whose lease was gone when they were to be settled", totals.lost)?;
    to.counter("lease_renewals_lost", "Leases that could not be kept", totals.renewals_lost)?;
    to.counter(
        "lease_renewals_failed",
        "Renewals of a lease that failed, and may have been made good",
        totals.renewals_failed,
    )?;
    to.counter("store_errors", "Calls of the dispatcher to the store that failed", totals.errors)?;
    to.counter("retention_removed_events", "Events that retention removed", totals.removed_events)?;
    to.gauge("dispatcher_in_flight", "Attempts that this process has under way", count(in_flight as u64))
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts beyond 2^53")]
fn count(number: u64) -> f64 {
    number as f64
}

struct To<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl To<'_, '_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: [(&str, u64); N],
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (value, number) in values {
            metric.encode_family(&[(label, value)])?.encode_gauge(&count(number))?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: [(&str, u64); N],
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, number) in values {
            metric.encode_family(&[(label, value)])?.encode_counter::<NoLabelSet, _, u64>(&number, None)?;
        }
        Ok(())
    }

    fn endpoints(&mut self, counts: &[(String, &'static str, u64)]) -> Result<(), Error> {
        let help = "Attempts of all dispatchers by endpoint and result; dead is a dead letter";
        let mut metric = self.0.encode_descriptor("endpoint_attempts", help, None, MetricType::Counter)?;
        for (endpoint, result, number) in counts {
            let labels = [("endpoint", endpoint.as_str()), ("result", *result)];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(number, None)?;
        }
        Ok(())
    }

    fn attempt_duration(&mut self, totals: &Totals) -> Result<(), Error> {
        let bounds = Totals::LATENCY_BOUNDS.iter().map(std::time::Duration::as_secs_f64).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(totals.latency_buckets).collect();
        let name = "attempt_duration_seconds";
        let mut metric = self.0.encode_descriptor(name, "How long attempts took", None, MetricType::Histogram)?;
        metric.encode_histogram::<NoLabelSet>(totals.latency_sum.as_secs_f64(), totals.attempts(), &buckets, None)
    }
}
