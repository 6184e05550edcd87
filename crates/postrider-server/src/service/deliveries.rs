//! Deliveries: look, explain, retry, cancel.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use postrider::event::check_name;
use postrider::store::Action;
use postrider::{DeliveryFilter, DeliveryId, DeliveryStatus, duration};

use super::endpoints::checked_reason;
use super::{Caller, Service};
use crate::api::deliveries::{BulkRetried, BulkRetry, Delivery, DeliveryDetail, DeliveryQuery};
use crate::api::{Listing, Problem, page_request};

/// How many are retried in one transaction.
const RETRIED_AT_ONCE: u32 = 500;

/// How many one request retries.
const MOST_RETRIED: u32 = 10_000;

/// What a delivery is cancelled for when nobody says why.
const NO_REASON: &str = "cancelled by an operator";

impl Service {
    /// Deliveries that match, newest first.
    pub async fn deliveries(&self, caller: &Caller, query: &DeliveryQuery) -> Result<Listing<Delivery>, Problem> {
        let page = page_request(query.limit, query.cursor.as_deref())?;
        let filter = DeliveryFilter {
            tenant: caller.tenant.filter().map(str::to_owned),
            status: query.status.as_deref().map(str::parse).transpose()?,
            ..self
                .narrowed(Narrowing {
                    endpoint_id: query.endpoint_id.as_deref(),
                    event_id: query.event_id.as_deref(),
                    event_type: query.event_type.as_deref(),
                    since: query.since.as_deref(),
                    until: query.until.as_deref(),
                })
                .await?
        };
        Ok(Listing::from_page(self.store().deliveries(&filter, &page).await?, Delivery::from))
    }

    /// One delivery with its attempts.
    pub async fn delivery(&self, caller: &Caller, id: DeliveryId) -> Result<DeliveryDetail, Problem> {
        self.found_delivery(caller, id).await.map(DeliveryDetail::from)
    }

    /// Makes a delivery due now.
    pub async fn retry_delivery(&self, caller: &Caller, id: DeliveryId) -> Result<DeliveryDetail, Problem> {
        caller.tenant_for_write()?;
        self.found_delivery(caller, id).await?;
        done(id, self.store().retry(id, &caller.operator).await?)?;
        self.delivery(caller, id).await
    }

    /// Stops a delivery, also while an attempt is under way.
    pub async fn cancel_delivery(
        &self,
        caller: &Caller,
        id: DeliveryId,
        reason: Option<&str>,
    ) -> Result<DeliveryDetail, Problem> {
        caller.tenant_for_write()?;
        let reason = checked_reason(reason.filter(|reason| !reason.trim().is_empty()).unwrap_or(NO_REASON))?;
        self.found_delivery(caller, id).await?;
        done(id, self.store().cancel(id, reason, &caller.operator).await?)?;
        self.delivery(caller, id).await
    }

    /// Makes every delivery that matches due now, the oldest first, up to a limit.
    pub async fn retry_deliveries(&self, caller: &Caller, request: &BulkRetry) -> Result<BulkRetried, Problem> {
        let tenant = caller.tenant_for_write()?;
        let limit = request.limit.unwrap_or(MOST_RETRIED);
        if !(1..=MOST_RETRIED).contains(&limit) {
            let detail = format!("limit is 1 to {MOST_RETRIED}, not {limit}");
            return Err(Problem::new(422, "limit_invalid", detail).about("limit"));
        }
        let filter = DeliveryFilter {
            tenant: Some(tenant.to_owned()),
            status: Some(retryable(&request.status)?),
            ..self
                .narrowed(Narrowing {
                    endpoint_id: request.endpoint_id.as_deref(),
                    event_id: request.event_id.as_deref(),
                    event_type: request.event_type.as_deref(),
                    since: request.since.as_deref(),
                    until: request.until.as_deref(),
                })
                .await?
        };
        let matched = self.store().count_deliveries(&filter).await?;
        // No more than matched in the beginning: what fails again at once matches again, and this would never end.
        let wanted = if request.dry_run { 0 } else { matched.min(u64::from(limit)) };
        let mut retried = 0;
        while retried < wanted {
            let at_once = u32::try_from(wanted - retried).unwrap_or(u32::MAX).min(RETRIED_AT_ONCE);
            let some = self.store().retry_matching(&filter, at_once, &caller.operator).await?;
            if some == 0 {
                break;
            }
            retried += some;
        }
        Ok(BulkRetried { matched, retried })
    }

    pub(super) async fn found_delivery(
        &self,
        caller: &Caller,
        id: DeliveryId,
    ) -> Result<postrider::DeliveryDetail, Problem> {
        let found = self.store().delivery(id).await?;
        let own = found.filter(|detail| caller.tenant.covers(&detail.delivery.tenant));
        own.ok_or_else(|| Problem::not_found("delivery", id))
    }

    async fn narrowed(&self, by: Narrowing<'_>) -> Result<DeliveryFilter, Problem> {
        if let Some(event_type) = by.event_type {
            check_name("event_type", "event_type_invalid", event_type)?;
        }
        Ok(DeliveryFilter {
            endpoint_id: by.endpoint_id.map(|text| checked_id("endpoint_id", text)).transpose()?,
            event_id: by.event_id.map(|text| checked_id("event_id", text)).transpose()?,
            event_type: by.event_type.map(str::to_owned),
            since: self.instant("since", by.since).await?,
            until: self.instant("until", by.until).await?,
            ..DeliveryFilter::default()
        })
    }

    /// The instant that a text means. How long ago something was is counted by the database's clock.
    pub(super) async fn instant(&self, field: &'static str, text: Option<&str>) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = text else { return Ok(None) };
        let refuse = || {
            let shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
            Problem::new(422, "instant_invalid", format!("{field} `{shown}` is not an instant"))
                .about(field)
                .hint("use 2026-02-21T12:00:00Z, 2026-02-21 (UTC), or 2h for two hours ago")
        };
        if let Ok(at) = text.parse::<Timestamp>() {
            return storable(at).ok_or_else(refuse).map(Some);
        }
        if let Ok(date) = text.parse::<Date>()
            && let Ok(midnight) = date.to_zoned(TimeZone::UTC)
        {
            return storable(midnight.timestamp()).ok_or_else(refuse).map(Some);
        }
        let ago = duration::parse(text).ok().and_then(|ago| SignedDuration::try_from(ago).ok()).ok_or_else(refuse)?;
        let now = self.store().health().await?.at;
        now.checked_sub(ago).ok().and_then(storable).ok_or_else(refuse).map(Some)
    }
}

/// By what a list is narrowed, as it was written.
struct Narrowing<'a> {
    endpoint_id: Option<&'a str>,
    event_id: Option<&'a str>,
    event_type: Option<&'a str>,
    since: Option<&'a str>,
    until: Option<&'a str>,
}

fn checked_id<T: std::str::FromStr<Err: ToString>>(field: &'static str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error: T::Err| Problem::new(422, "id_invalid", error.to_string()).about(field))
}

/// Instants that every database can compare with: not every one reaches back to the year -9999.
pub(super) fn storable(at: Timestamp) -> Option<Timestamp> {
    (at >= Timestamp::UNIX_EPOCH).then_some(at)
}

fn retryable(text: &str) -> Result<DeliveryStatus, Problem> {
    let status = text.parse()?;
    match status {
        DeliveryStatus::Dead | DeliveryStatus::Failed | DeliveryStatus::Cancelled => Ok(status),
        DeliveryStatus::Pending | DeliveryStatus::Delivered => {
            let detail = format!("there is nothing to retry about deliveries that are {status}");
            Err(Problem::new(422, "status_not_retryable", detail).about("status").hint("use dead, failed or cancelled"))
        }
    }
}

fn done(id: DeliveryId, action: Action) -> Result<(), Problem> {
    match action {
        Action::Done => Ok(()),
        Action::NotFound => Err(Problem::not_found("delivery", id)),
        Action::Forbidden(forbidden) => Err(forbidden.into()),
    }
}
