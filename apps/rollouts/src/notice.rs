//! What is told of a plan, and when: the whole rule, without a database.
//!
//! A notice is one event of Postrider that claims the plan's subject in a generation. The first notice of a generation
//! wins, whichever kind it is, so failure and completion exclude each other. Nobody has to know whether somebody else
//! told already: everyone who has something to tell enqueues it, and Postrider keeps one.

use postrider::NewEvent;
use serde_json::json;

use crate::plan::{Status, Task, subject};
use crate::rollouts::Held;

/// The type of the event that tells of a failure.
pub const PIPELINE_FAILED: &str = "PIPELINE_FAILED";
/// The type of the event that tells of completion.
pub const PIPELINE_COMPLETED: &str = "PIPELINE_COMPLETED";

/// What just happened to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A run of one of its tasks failed.
    RunFailed,
    /// A run succeeded, or tasks were skipped.
    TasksSettled,
}

/// The event type to tell, if there is something to tell. An older failure is not told again because another task
/// ended well.
fn event_type(change: Change, tasks: &[Task]) -> Option<&'static str> {
    match change {
        Change::RunFailed => Some(PIPELINE_FAILED),
        Change::TasksSettled if tasks.iter().all(|task| task.status.is_settled()) => Some(PIPELINE_COMPLETED),
        Change::TasksSettled => None,
    }
}

/// The event that tells of a change to a plan that stands like this.
pub(crate) fn notice(change: Change, plan: &Held, tasks: &[Task]) -> Option<NewEvent> {
    let event_type = event_type(change, tasks)?;
    let failed: Vec<&Task> = tasks.iter().filter(|task| task.status == Status::Failed).collect();
    let mut payload = json!({
        "type": event_type,
        "plan": { "id": plan.id, "title": plan.title },
        "generation": plan.generation,
    });
    if change == Change::RunFailed {
        payload["failed_tasks"] = json!(failed);
    }
    let event = NewEvent::new(event_type, payload.to_string());
    Some(event.to(&plan.webhook_url).once_in(subject(plan.id), plan.generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(statuses: &[Status]) -> Vec<Task> {
        statuses.iter().map(|&status| Task { name: "a".to_owned(), status, attempt: Some(0) }).collect()
    }

    #[test]
    fn every_failure_is_a_reason_to_tell() {
        assert_eq!(event_type(Change::RunFailed, &tasks(&[Status::Failed, Status::Running])), Some(PIPELINE_FAILED));
    }

    #[test]
    fn completion_is_told_when_every_task_is_done_or_skipped() {
        let told = |statuses: &[Status]| event_type(Change::TasksSettled, &tasks(statuses));
        assert_eq!(told(&[Status::Done, Status::Skipped]), Some(PIPELINE_COMPLETED));
        for open in [Status::NotStarted, Status::Pending, Status::Running, Status::Failed] {
            assert_eq!(told(&[Status::Done, open]), None, "{open:?}");
        }
    }
}
