//! The same as a drain, to receivers that speak TLS, against the raw limit over TLS.

use super::drain::{DESTINATIONS, compare};
use crate::Failure;
use crate::lab::Kind;
use crate::report::{Report, grouped};

pub(crate) async fn run(events: usize, turns: usize, kinds: &[Kind]) -> Result<Report, Failure> {
    let what = format!("{} deliveries of 1 kB over TLS and HTTP/1.1, against the raw limit over TLS", grouped(events));
    let mut report = Report::new("tls", what);
    for &kind in kinds {
        compare(kind, true, DESTINATIONS, events, turns, None, &mut report).await?;
    }
    Ok(report)
}
