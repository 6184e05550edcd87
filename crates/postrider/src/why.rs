//! Why a delivery is in the state it is, and what happens next: what `postrider why` says.
//!
//! A pure function of what a store shows. It invents nothing: where the reason cannot be known, as when nobody takes a
//! delivery that is due, it says what is usually behind it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::delivery::{Attempt, Delivery, DeliveryDetail, DeliveryStatus};
use crate::duration;
use crate::endpoint::{Endpoint, EndpointStatus};
use crate::retry::RetryPolicy;

/// How long a delivery may be due before that is worth a remark: dispatchers look for work every second.
const LONG_DUE: Duration = Duration::from_mins(1);

/// What is known of a delivery.
#[derive(Debug, Clone, Copy)]
pub struct WhyInput<'a> {
    /// The delivery with its attempts.
    pub detail: &'a DeliveryDetail,
    /// Its endpoint. None for a bare destination; if the delivery names one all the same, that one was removed.
    pub endpoint: Option<&'a Endpoint>,
    /// The database's time.
    pub now: Timestamp,
    /// The policy that dispatchers use where an endpoint has none of its own.
    pub default_policy: &'a RetryPolicy,
}

/// An explanation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Why {
    /// In one paragraph.
    pub summary: String,
    /// What it follows from, one sentence each.
    pub facts: Vec<String>,
}

/// Why the delivery is in the state it is, and what happens next.
pub fn why(input: &WhyInput<'_>) -> Why {
    let explained = Explained::new(input);
    let summary = match input.detail.delivery.status {
        DeliveryStatus::Delivered => explained.delivered(),
        DeliveryStatus::Dead => explained.dead(),
        DeliveryStatus::Cancelled => explained.cancelled(),
        DeliveryStatus::Pending | DeliveryStatus::Failed => explained.unsettled(),
    };
    Why { summary, facts: explained.facts() }
}

/// The input, taken apart.
struct Explained<'a> {
    delivery: &'a Delivery,
    attempts: &'a [Attempt],
    endpoint: Option<&'a Endpoint>,
    policy: &'a RetryPolicy,
    now: Timestamp,
}

impl<'a> Explained<'a> {
    fn new(input: &WhyInput<'a>) -> Self {
        let own_policy = input.endpoint.and_then(|endpoint| endpoint.settings.retry_policy.as_ref());
        Self {
            delivery: &input.detail.delivery,
            attempts: &input.detail.attempts,
            endpoint: input.endpoint,
            policy: own_policy.unwrap_or(input.default_policy),
            now: input.now,
        }
    }

    // --- What is over -------------------------------------------------------------------------------------------------

    fn delivered(&self) -> String {
        let answer = match self.attempts.last().and_then(|attempt| attempt.status_code) {
            Some(status) => format!("its receiver answered {status}"),
            None => "its receiver acknowledged it".to_owned(),
        };
        let when = self.delivery.last_attempted_at.map_or_else(String::new, |at| format!(" {}", self.ago(at)));
        format!("It was delivered{when}: {answer} {}. Nothing more happens.", self.after_how_many())
    }

    fn dead(&self) -> String {
        let delivery = self.delivery;
        let next = "It stays a dead letter until an operator retries it, which begins a new round of attempts.";
        // A settle sets the count back to 0, so what died with one died of it.
        if delivery.abandoned_count > 0 {
            let claims = counted(delivery.abandoned_count, "claim");
            return format!(
                "It is dead because {claims} of it in a row ended without a result: each time the dispatcher that had it \
                 crashed or lost the database, and it may be this very delivery that makes them crash. {next}"
            );
        }
        format!("It is dead because {}{}. {next}", self.failures(), self.last_error())
    }

    fn cancelled(&self) -> String {
        let reason = self.delivery.error_detail.as_deref().unwrap_or("no reason was given");
        let next = if self.is_removed() {
            "Its endpoint is removed, so nothing more can be sent."
        } else {
            "Nothing more is sent unless an operator retries it."
        };
        format!("It was cancelled {}: {}. {next}", self.after_how_many(), without_stop(reason))
    }

    // --- What is not --------------------------------------------------------------------------------------------------

    fn unsettled(&self) -> String {
        if let Some(leased) = self.leased() {
            return leased;
        }
        let due_in = self.delivery.next_attempt_at.and_then(|at| until(self.now, at));
        if let Some(held_back) = self.held_back(due_in) {
            return held_back;
        }
        match due_in {
            Some(wait) => self.scheduled(wait),
            None => self.due(),
        }
    }

    fn leased(&self) -> Option<String> {
        let (owner, lease_until) = (self.delivery.lease_owner.as_ref()?, self.delivery.lease_until?);
        let number = self.attempts.len() + 1;
        Some(match until(self.now, lease_until) {
            Some(left) => format!(
                "Attempt {number} is under way: {owner} holds it for at least another {}, and renews that for as long as \
                 the receiver takes. {}",
                duration::about(left),
                self.if_it_fails()
            ),
            None => format!(
                "{owner} had it for attempt {number}, and its lease expired {}: that dispatcher has crashed, is stuck, or \
                 cannot reach the database. The next dispatcher that looks takes it over; if none does within seconds, none is \
                 running.",
                self.ago(lease_until)
            ),
        })
    }

    /// Why nothing is sent although it is or will be due.
    fn held_back(&self, due_in: Option<Duration>) -> Option<String> {
        let due = match due_in {
            Some(wait) => format!("It would be due in {}", duration::about(wait)),
            None => "It is due".to_owned(),
        };
        if self.is_removed() {
            return Some(format!("{due}, but its endpoint was removed: it will be cancelled shortly."));
        }
        let endpoint = self.endpoint?;
        let reason = endpoint.status_reason.as_deref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let reason = without_stop(&reason);
        match endpoint.status {
            EndpointStatus::Paused => {
                Some(format!("{due}, but its endpoint is paused{reason}. It waits, and goes out when the endpoint is resumed."))
            }
            EndpointStatus::Disabled => Some(format!(
                "{due}, but its endpoint is disabled{reason}. It waits until an operator resumes or removes the endpoint."
            )),
            EndpointStatus::Active => endpoint.trouble.as_deref().map(|trouble| {
                format!(
                    "{due}, but nothing can be sent, because the settings of its endpoint cannot be read: {}. It waits until \
                     they are mended.",
                    without_stop(trouble)
                )
            }),
        }
    }

    fn scheduled(&self, wait: Duration) -> String {
        let wait = duration::about(wait);
        if self.delivery.status == DeliveryStatus::Pending {
            return format!("It was enqueued for later, and its first attempt is due in {wait}.");
        }
        let failures = at_beginning(&self.failures());
        format!("{failures}{}. The next one is due in {wait}. {}", self.last_error(), self.if_it_fails())
    }

    fn due(&self) -> String {
        let since = self.delivery.next_attempt_at.unwrap_or(self.delivery.created_at);
        let waited = until(since, self.now).unwrap_or_default();
        let first = match (self.delivery.status, self.delivery.earlier_attempts) {
            (DeliveryStatus::Failed, _) => {
                let failures = at_beginning(&self.failures());
                format!("{failures}{}, and the next one is due", self.last_error())
            }
            (_, 0) => "Its first attempt is due".to_owned(),
            _ => "An operator has retried it, and the first attempt of the new round is due".to_owned(),
        };
        if waited < LONG_DUE {
            return format!("{first}: it waits for a dispatcher to take it, which is a matter of seconds.");
        }
        let waited = duration::about(waited);
        let limits = self.endpoint.map_or("", |endpoint| {
            let limited = endpoint.settings.max_in_flight.is_some() || endpoint.settings.rate_limit.is_some();
            if limited { ", or its endpoint's own limits let no more through" } else { "" }
        });
        format!(
            "{first}, and has been for {waited} without a dispatcher taking it. Either no dispatcher is running, or much \
             else is waiting for the same destination{limits}."
        )
    }

    // --- Parts of sentences -------------------------------------------------------------------------------------------

    fn is_removed(&self) -> bool {
        self.delivery.endpoint_id.is_some() && self.endpoint.is_none()
    }

    fn ago(&self, at: Timestamp) -> String {
        match until(at, self.now) {
            Some(ago) => format!("{} ago", duration::about(ago)),
            None => "just now".to_owned(),
        }
    }

    fn after_how_many(&self) -> String {
        match u32::try_from(self.attempts.len()).unwrap_or(u32::MAX) {
            0 => "before any attempt".to_owned(),
            1 => "after one attempt".to_owned(),
            count => format!("after {count} attempts"),
        }
    }

    /// How many attempts of this round failed.
    fn failures(&self) -> String {
        match (self.delivery.attempt_count, self.policy.max_attempts()) {
            (1, 1) => "its only attempt failed".to_owned(),
            (made, most) if made == most => format!("all {most} attempts failed"),
            (made, most) if made < most => format!("{made} of {most} attempts failed"),
            // The policy has been made shorter since.
            (made, _) => format!("{} failed", counted(made, "attempt")),
        }
    }

    fn last_error(&self) -> String {
        let error = self
            .delivery
            .error_detail
            .as_deref()
            .or(self.attempts.last().and_then(|last| last.error_detail.as_deref()));
        error.map_or_else(String::new, |error| format!(", the last one with \"{}\"", without_stop(error)))
    }

    fn if_it_fails(&self) -> String {
        let failures = self.delivery.attempt_count + 1;
        match self.policy.scheduled_delay(failures) {
            Some(delay) => format!(
                "If that fails, attempt {} of {} follows {} later.",
                failures + 1,
                self.policy.max_attempts(),
                duration::format(delay)
            ),
            None => "It is the last one: if that fails, the delivery is dead.".to_owned(),
        }
    }

    // --- What all of it follows from ----------------------------------------------------------------------------------

    fn facts(&self) -> Vec<String> {
        let delivery = self.delivery;
        let mut facts = vec![
            format!(
                "The event {} of type {} was enqueued at {}.",
                delivery.event_id, delivery.event_type, delivery.created_at
            ),
            self.destination(),
        ];
        facts.extend(self.endpoint.map(endpoint_fact));
        facts.push(format!(
            "{} made in this round, of {} that are allowed.",
            were(&at_beginning(&counted(delivery.attempt_count, "attempt")), delivery.attempt_count),
            self.policy.max_attempts()
        ));
        if delivery.earlier_attempts > 0 {
            let earlier = at_beginning(&counted(delivery.earlier_attempts, "attempt"));
            facts.push(format!(
                "{} made in earlier rounds, before an operator retried it.",
                were(&earlier, delivery.earlier_attempts)
            ));
        }
        facts.extend(self.attempts.last().map(attempt_fact));
        if delivery.abandoned_count > 0 {
            let claims = at_beginning(&counted(delivery.abandoned_count, "claim"));
            facts.push(format!(
                "{claims} in a row ended without a result: whoever held it crashed or lost the database."
            ));
        }
        if let (Some(owner), Some(lease_until)) = (&delivery.lease_owner, delivery.lease_until) {
            facts.push(format!("{owner} holds its lease until {lease_until}."));
        }
        facts.extend(delivery.next_attempt_at.map(|at| format!("The next attempt is due at {at}.")));
        facts
    }

    fn destination(&self) -> String {
        let url = &self.delivery.destination_url;
        match self.delivery.endpoint_id {
            Some(id) if self.is_removed() => format!("It goes to {url}, for the endpoint {id}, which was removed."),
            Some(id) => format!("It goes to {url}, for the endpoint {id}."),
            None => format!("It goes to {url}, which was given with the event."),
        }
    }
}

fn endpoint_fact(endpoint: &Endpoint) -> String {
    let failing =
        endpoint.failing_since.map_or_else(String::new, |since| format!(", and has been failing since {since}"));
    let reason = endpoint.status_reason.as_deref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("The endpoint is {}{reason}{failing}.", endpoint.status.as_str())
}

fn attempt_fact(attempt: &Attempt) -> String {
    let outcome = match (&attempt.error_detail, attempt.status_code) {
        (Some(error), _) => without_stop(error).to_owned(),
        (None, Some(status)) => format!("HTTP {status}"),
        (None, None) => attempt.outcome.to_string(),
    };
    let Attempt { number, started_at, duration_ms, worker_id, .. } = attempt;
    format!(
        "Attempt {number} began at {started_at}, took {duration_ms} ms, was made by {worker_id} and ended with: {outcome}."
    )
}

/// How long from one instant to a later one; none if it is not later.
fn until(from: Timestamp, to: Timestamp) -> Option<Duration> {
    Duration::try_from(to.duration_since(from)).ok().filter(|wait| !wait.is_zero())
}

fn counted(count: u32, noun: &str) -> String {
    match count {
        0 => format!("no {noun}"),
        1 => format!("one {noun}"),
        count => format!("{count} {noun}s"),
    }
}

fn were(counted: &str, count: u32) -> String {
    format!("{counted} {} been", if count > 1 { "have" } else { "has" })
}

fn at_beginning(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// So that a sentence that is quoted inside of another does not end it.
fn without_stop(text: &str) -> &str {
    text.trim_end_matches('.')
}
