//! The nouns: plans, their tasks, and how those stand.

use std::collections::HashSet;
use std::time::Duration;

use postrider::{OnceClaim, Refusal};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::object;

/// A plan to be created.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// For people.
    pub title: String,
    /// Who hears how it ends.
    pub webhook_url: String,
    /// What is to be done, in no particular order.
    #[serde(deserialize_with = "object::list")]
    pub tasks: Vec<NewTask>,
}

/// A task to be created.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Its name, unique within its plan.
    pub name: String,
    /// What its runs do.
    #[serde(default, deserialize_with = "object::one")]
    pub script: Script,
}

/// What a task's runs do, since this is a demonstration: they take their time, and end as they were told to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// How they end.
    #[serde(default)]
    pub outcome: Outcome,
    /// How long each takes: `250ms`.
    #[serde(default, serialize_with = "write_duration", deserialize_with = "read_duration")]
    pub takes: Duration,
}

/// How a task's runs end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every run succeeds.
    #[default]
    Succeeds,
    /// Every run fails.
    Fails,
    /// So many runs fail, those after them succeed.
    FailsTimes(u32),
}

impl Outcome {
    /// Whether the run with this number, counted from 0, succeeds.
    pub fn succeeds_at(self, attempt: u32) -> bool {
        match self {
            Self::Succeeds => true,
            Self::Fails => false,
            Self::FailsTimes(times) => attempt >= times,
        }
    }
}

fn write_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&postrider::duration::format(*duration))
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    postrider::duration::parse(&text).map_err(serde::de::Error::custom)
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nobody asked for it yet.
    NotStarted,
    /// Its run waits for a replica.
    Pending,
    /// A replica runs it.
    Running,
    /// Its last run succeeded.
    Done,
    /// Its last run failed.
    Failed,
    /// It will not be run.
    Skipped,
}

impl Status {
    /// What the database calls it. Only skipped tasks have cancelled runs, and those count as skipped.
    pub(crate) fn from_database(text: &str) -> Result<Self, sqlx::Error> {
        match text {
            "not_started" => Ok(Self::NotStarted),
            "pending" => Ok(Self::Pending),
            "running" => Ok(Self::Running),
            "done" => Ok(Self::Done),
            "failed" => Ok(Self::Failed),
            "skipped" => Ok(Self::Skipped),
            other => Err(sqlx::Error::Decode(format!("a task cannot be `{other}`").into())),
        }
    }

    /// Whether a run of it waits or is under way.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }

    /// Whether a plan may be complete with such a task.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

/// A task as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub status: Status,
    /// The number of its last run, counted from 0; none before the first.
    pub attempt: Option<u32>,
}

/// A plan as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Its id.
    pub id: i64,
    /// For people.
    pub title: String,
    /// Who hears how it ends.
    pub webhook_url: String,
    /// In each generation there is one notification at most.
    pub generation: u64,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// What was told in this generation; none when nothing ever was to be told.
    pub notification: Option<OnceClaim>,
}

/// The subject of which one notification is told per generation.
pub fn subject(plan_id: i64) -> String {
    format!("plan/{plan_id}")
}

impl NewPlan {
    const MAX_TASKS: usize = 1_000;
    const MAX_TEXT_BYTES: usize = 200;
    const LONGEST_TASK: Duration = Duration::from_hours(24);

    /// Says what is wrong with it, but for its webhook, which the policy of destinations judges.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_text("title", "title_invalid", &self.title)?;
        if self.tasks.is_empty() || self.tasks.len() > Self::MAX_TASKS {
            let detail = format!("a plan has 1 to {} tasks, this one has {}", Self::MAX_TASKS, self.tasks.len());
            return Err(Refusal::new("tasks_invalid", "tasks", detail));
        }
        let mut names = HashSet::new();
        for task in &self.tasks {
            check_text("tasks.name", "task_name_invalid", &task.name)?;
            if !names.insert(&task.name) {
                let detail = format!("two tasks are named `{}`", task.name);
                return Err(Refusal::new("task_name_taken", "tasks.name", detail));
            }
            if task.script.takes > Self::LONGEST_TASK {
                return Err(Refusal::new("takes_invalid", "tasks.script.takes", "a task takes at most 24h"));
            }
        }
        Ok(())
    }
}

fn check_text(field: &'static str, code: &'static str, text: &str) -> Result<(), Refusal> {
    let limit = NewPlan::MAX_TEXT_BYTES;
    if text.trim().is_empty() || text.len() > limit || text.chars().any(char::is_control) {
        return Err(Refusal::new(code, field, format!("{field} has 1 to {limit} bytes and no control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_reads_as_it_is_written() {
        let script: Script = serde_json::from_str(r#"{"outcome":{"fails_times":2},"takes":"250ms"}"#).unwrap();
        assert_eq!(script, Script { outcome: Outcome::FailsTimes(2), takes: Duration::from_millis(250) });
        assert_eq!(serde_json::to_string(&script).unwrap(), r#"{"outcome":{"fails_times":2},"takes":"250ms"}"#);
        assert_eq!([0, 1, 2, 3].map(|attempt| script.outcome.succeeds_at(attempt)), [false, false, true, true]);
        assert_eq!(serde_json::from_str::<Script>("{}").unwrap(), Script::default());
    }

    #[test]
    fn what_is_no_plan_is_refused_by_name() {
        let code = |title: &str, tasks: &[&str]| {
            let task = |name: &&str| NewTask { name: (*name).to_owned(), script: Script::default() };
            let plan = NewPlan {
                title: title.to_owned(),
                webhook_url: String::new(),
                tasks: tasks.iter().map(task).collect(),
            };
            plan.check().err().map(|refusal| refusal.code)
        };
        assert_eq!(code("t", &["a", "b"]), None);
        assert_eq!(code(" ", &["a"]), Some("title_invalid"));
        assert_eq!(code("t", &[]), Some("tasks_invalid"));
        assert_eq!(code("t", &["a\0"]), Some("task_name_invalid"));
        assert_eq!(code("t", &["a", "a"]), Some("task_name_taken"));
    }
}
