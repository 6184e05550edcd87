//! Which deliveries: flags to a filter.

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use postrider::{Cursor, DeliveryFilter, DeliveryId, DeliveryStatus, InvalidId, PageRequest};

use crate::failure::{Exit, Failure};
use crate::instant::{self, Direction};

/// Which deliveries; what is not given does not narrow.
#[derive(Debug, Args)]
#[group(id = "Filter", multiple = true)]
#[command(next_help_heading = "Filter")]
pub(crate) struct FilterFlags {
    /// In this status
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(DeliveryStatus::ALL.map(DeliveryStatus::as_str)))]
    pub(crate) status: Option<String>,
    /// Of events of exactly this type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// To this endpoint
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
    /// Of this event
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Created at or after: `2026-02-21T12:00:00Z`, `2026-02-21`, or `2h` ago
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Created before
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// Of this tenant [default: of all]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl FilterFlags {
    /// The filter they describe.
    pub(crate) fn parse(&self) -> Result<DeliveryFilter, Failure> {
        let (since, until) = span(self.since.as_deref(), self.until.as_deref())?;
        Ok(DeliveryFilter {
            tenant: self.tenant.clone(),
            status: self.status.as_deref().map(str::parse).transpose()?,
            endpoint_id: self.endpoint.as_deref().map(|id| id.parse().map_err(invalid_id)).transpose()?,
            event_id: self.event.as_deref().map(|id| id.parse().map_err(invalid_id)).transpose()?,
            event_type: self.event_type.clone(),
            since,
            until,
        })
    }
}

/// The instants that `--since` and `--until` mean.
pub(crate) fn span(
    since: Option<&str>,
    until: Option<&str>,
) -> Result<(Option<Timestamp>, Option<Timestamp>), Failure> {
    let now = Timestamp::now();
    let at = |option, text| instant::parse(option, text, now, Direction::Past);
    Ok((since.map(|text| at("--since", text)).transpose()?, until.map(|text| at("--until", text)).transpose()?))
}

/// Which part of a list.
#[derive(Debug, Args)]
#[command(next_help_heading = "Page")]
pub(crate) struct PageFlags {
    /// How many, 1 to 250
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,
    /// Go on where the page before ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

impl PageFlags {
    /// The page they describe.
    pub(crate) fn parse(&self) -> Result<PageRequest, Failure> {
        let cursor: Option<Cursor> = self.cursor.as_deref().map(str::parse).transpose()?;
        Ok(PageRequest::new(self.limit, cursor)?)
    }
}

/// The id that a text means.
pub(crate) fn delivery_id(text: &str) -> Result<DeliveryId, Failure> {
    text.parse().map_err(invalid_id)
}

/// The ids that texts mean, or the first one that means none: nothing is done by halves because of a typing error.
pub(crate) fn delivery_ids(texts: &[String]) -> Result<Vec<DeliveryId>, Failure> {
    texts.iter().map(|text| delivery_id(text)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err calls")]
fn invalid_id(error: InvalidId) -> Failure {
    Failure::new(Exit::Refused, "id_invalid", crate::output::plain(&error.to_string(), 300))
        .hint("`postrider deliveries list` prints the ids of deliveries")
}
