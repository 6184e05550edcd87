//! Which deliveries, and which part of a list: flags to a query.

use std::fmt::Display;
use std::str::FromStr;

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use postrider::{Cursor, DeliveryId, DeliveryStatus, EndpointId, EventId, InvalidId, PageRequest, Refusal};
use postrider_server::api::Listing;
use postrider_server::api::deliveries::DeliveryQuery;
use postrider_server::api::keys::PageQuery;
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::instant::{self, Direction};
use crate::output::{Output, plain};

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
}

impl FilterFlags {
    /// The query they describe. What cannot be is refused here, before anybody is asked.
    pub(crate) fn parse(&self) -> Result<DeliveryQuery, Failure> {
        let (since, until) = span(self.since.as_deref(), self.until.as_deref())?;
        Ok(DeliveryQuery {
            status: self.status.clone(),
            endpoint_id: canonical::<EndpointId>(self.endpoint.as_deref(), "endpoints")?,
            event_id: canonical::<EventId>(self.event.as_deref(), "events")?,
            event_type: self.event_type.clone(),
            since: since.map(|at| at.to_string()),
            until: until.map(|at| at.to_string()),
            ..DeliveryQuery::default()
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
    /// Every page, to the end
    #[arg(long, conflicts_with_all = ["cursor", "limit"])]
    all: bool,
}

impl PageFlags {
    /// Gathers what was asked for: one page, or all of them.
    pub(crate) async fn gather<T>(
        &self,
        fetch: impl AsyncFn(PageQuery) -> Result<Listing<T>, Failure>,
    ) -> Result<Listing<T>, Failure> {
        let limit = if self.all { PageRequest::MAX_LIMIT } else { self.limit };
        let mut listing = fetch(PageQuery { limit: Some(limit), cursor: self.cursor.clone() }).await?;
        // A page for which much was looked at may have no row, and be followed by one that has some.
        while (self.all || listing.data.is_empty())
            && let Some(cursor) = listing.next_cursor.take()
        {
            let next = fetch(PageQuery { limit: Some(limit), cursor: Some(cursor) }).await?;
            listing.data.extend(next.data);
            listing.next_cursor = next.next_cursor;
        }
        Ok(listing)
    }

    /// Refuses what no list takes, before anybody is asked.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.check_as::<Cursor>()
    }

    /// The same, for a list with cursors of another kind.
    pub(crate) fn check_as<C: FromStr<Err = Refusal>>(&self) -> Result<(), Failure> {
        self.cursor.as_deref().map(str::parse::<C>).transpose()?;
        PageRequest::new(self.limit, None)?;
        Ok(())
    }
}

/// Prints a list: as one document, or as what `table` makes of its rows.
pub(crate) fn print<T: Serialize>(
    listing: &Listing<T>,
    when_empty: &str,
    output: Output,
    table: impl FnOnce(&[T]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if output.json {
        return output.document(listing);
    }
    if listing.data.is_empty() {
        return output.line(when_empty);
    }
    table(&listing.data)?;
    match &listing.next_cursor {
        Some(cursor) => output.line(format!("more: --cursor {cursor}")),
        None => Ok(()),
    }
}

/// The id that a text means; `kind` is the command that lists what it may name.
pub(crate) fn parse_id<I: FromStr<Err = InvalidId>>(text: &str, kind: &str) -> Result<I, Failure> {
    text.parse().map_err(|error: InvalidId| {
        Failure::new(Exit::Refused, "id_invalid", plain(&error.to_string(), 300))
            .hint(format!("`postrider {kind} list` prints the ids of {kind}"))
    })
}

fn canonical<I: FromStr<Err = InvalidId> + Display>(text: Option<&str>, kind: &str) -> Result<Option<String>, Failure> {
    text.map(|text| parse_id::<I>(text, kind).map(|id| id.to_string())).transpose()
}

/// The ids that texts mean, or the first one that means none: nothing is done by halves because of a typing error.
pub(crate) fn delivery_ids(texts: &[String]) -> Result<Vec<DeliveryId>, Failure> {
    texts.iter().map(|text| parse_id(text, "deliveries")).collect()
}
