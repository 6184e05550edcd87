//! `postrider endpoints test`: sends, and waits for what comes of it.

use std::time::Duration;

use postrider::{DeliveryId, DeliveryStatus, EndpointId, duration};
use postrider_server::api::deliveries::DeliveryDetail;
use tokio::time::Instant;

use crate::client::Client;
use crate::commands::deliveries;
use crate::failure::{Exit, Failure};
use crate::output::{Output, plain};

/// How long to wait between two looks, at first and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// What `--wait` means.
pub(super) fn wait(text: &str) -> Result<Duration, Failure> {
    duration::parse(text).map_err(|reason| {
        let message = format!("--wait `{}` is refused: {reason}", plain(text, 64));
        Failure::new(Exit::Refused, "duration_invalid", message)
    })
}

/// Sends the event, and tells of its first attempt.
pub(super) async fn run(client: &Client, id: EndpointId, wait: Duration, output: Output) -> Result<(), Failure> {
    let sent = client.test_endpoint(id).await?;
    let Some(delivery) = sent.deliveries.first() else {
        let message = format!("nothing was sent: {id} takes no events now");
        return Err(Failure::new(Exit::Failed, "endpoint_not_tested", message)
            .hint(format!("`postrider endpoints show {id}` tells its status; `resume` makes it active")));
    };
    if wait.is_zero() {
        return if output.json {
            output.document(&client.delivery(delivery.id).await?)
        } else {
            output
                .line(format!("{} is on its way; `postrider why {}` tells what became of it", delivery.id, delivery.id))
        };
    }
    let detail = attempted(client, delivery.id, wait).await?;
    if output.json {
        output.document(&detail)?;
    } else {
        deliveries::show(&detail, output)?;
    }
    verdict(&detail, wait)
}

/// The delivery after its first attempt, or as it is when the time is over.
async fn attempted(client: &Client, id: DeliveryId, wait: Duration) -> Result<DeliveryDetail, Failure> {
    let deadline = Instant::now() + wait;
    let mut pause = FIRST_PAUSE;
    loop {
        let detail = client.delivery(id).await?;
        let over = Instant::now() >= deadline;
        if over || detail.delivery.status.is_settled() || !detail.attempts.is_empty() {
            return Ok(detail);
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = LAST_PAUSE.min(pause * 2);
    }
}

fn verdict(detail: &DeliveryDetail, wait: Duration) -> Result<(), Failure> {
    let delivery = &detail.delivery;
    if delivery.status == DeliveryStatus::Delivered {
        return Ok(());
    }
    let why = format!("`postrider why {}` says what happens next", delivery.id);
    if detail.attempts.is_empty() && !delivery.status.is_settled() {
        let message = format!("no attempt was made within {}", duration::format(wait));
        let hint = format!("is a dispatcher running, and the endpoint active? {why}");
        return Err(Failure::new(Exit::Failed, "test_not_attempted", message).hint(hint));
    }
    let detail = delivery.error_detail.as_deref().unwrap_or("the receiver did not take it");
    Err(Failure::new(Exit::Failed, "test_failed", plain(detail, 1_000)).hint(why))
}
