//! What people ask for: plans, and the running and skipping of their tasks.
//!
//! Every change of a plan is one transaction that holds the plan's row from its first statement on, and what there is to
//! tell is enqueued in it. A plan that stands so, and the notification of it, are there together or not at all.

use std::collections::BTreeSet;

use postrider::store::Operator;
use postrider::{Admission, DEFAULT_TENANT, DestinationPolicy, EnqueueError, Enqueued, Refusal, Store as _};
use postrider_postgres::PostgresStore;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};

use crate::error::{Error, Result};
use crate::notice::{Change, notice};
use crate::plan::{NewPlan, Plan, Script, Status, Task, subject};

/// Plans in a database that Postrider shares.
#[derive(Debug, Clone)]
pub struct Rollouts {
    store: PostgresStore,
    destinations: DestinationPolicy,
}

/// A plan whose row this transaction holds.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: i64,
    pub(crate) title: String,
    pub(crate) webhook_url: String,
    pub(crate) generation: u64,
}

type PlanRow = (String, String, i64);

/// Any number; what matters is that all replicas have the same.
const MIGRATION_LOCK: i64 = 0x726f_6c6c_6f75_7473;

impl Rollouts {
    /// Plans in this database, which may tell these destinations of their end. Brings the schema up to date; any number
    /// of processes may do so at once.
    pub async fn open(database_url: &str, destinations: DestinationPolicy) -> Result<Self> {
        let admission = Admission { destinations: destinations.clone(), ..Admission::default() };
        let store = PostgresStore::connect(database_url).await?.with_admission(admission);
        store.migrate().await?;
        let mut transaction = store.pool().begin().await?;
        sqlx::query("select pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK).execute(&mut *transaction).await?;
        sqlx::raw_sql(include_str!("../sql/schema.sql")).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(Self { store, destinations })
    }

    /// Postrider's store, for its dispatcher.
    pub fn store(&self) -> &PostgresStore {
        &self.store
    }

    /// Which destinations may be told.
    pub fn destinations(&self) -> &DestinationPolicy {
        &self.destinations
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    /// Creates a plan. None of its tasks is started.
    pub async fn create(&self, plan: &NewPlan) -> Result<Plan> {
        plan.check()?;
        let destination = self.destinations.check_url(&plan.webhook_url)?;
        let names: Vec<&str> = plan.tasks.iter().map(|task| task.name.as_str()).collect();
        let scripts: Vec<Json<&Script>> = plan.tasks.iter().map(|task| Json(&task.script)).collect();
        let id: i64 = sqlx::query_scalar(include_str!("../sql/create_plan.sql"))
            .bind(&plan.title)
            .bind(destination.as_str())
            .bind(names)
            .bind(scripts)
            .fetch_one(self.pool())
            .await?;
        self.plan(id).await
    }

    /// A plan as it stands.
    pub async fn plan(&self, id: i64) -> Result<Plan> {
        let mut connection = self.pool().acquire().await?;
        let row = sqlx::query_as(include_str!("../sql/plan.sql")).bind(id).fetch_optional(&mut *connection).await?;
        let (title, webhook_url, generation): PlanRow = row.ok_or(Error::PlanNotFound(id))?;
        let tasks = tasks(&mut connection, id).await?;
        drop(connection);
        let notification = self.store.once(DEFAULT_TENANT, &subject(id)).await?;
        Ok(Plan { id, title, webhook_url, generation: generation.cast_unsigned(), tasks, notification })
    }

    /// Runs tasks that were not started or have failed; without names, all of those. Begins the plan's next generation:
    /// whoever asked hears how it ends this time.
    pub async fn batch_run_tasks(&self, plan_id: i64, names: Option<&[String]>) -> Result<Plan> {
        let can_run = |status| matches!(status, Status::NotStarted | Status::Failed);
        let mut transaction = self.pool().begin().await?;
        let mut plan = hold(&mut transaction, plan_id).await?;
        hold_open_runs(&mut transaction, plan_id).await?;
        let chosen = choose(&tasks(&mut transaction, plan_id).await?, names, "run", can_run)?;
        self.begin_generation(&mut transaction, &mut plan, "BatchRunTasks").await?;
        sqlx::query(include_str!("../sql/start_runs.sql"))
            .bind(plan_id)
            .bind(&chosen)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.plan(plan_id).await
    }

    /// Skips tasks that nobody runs at the moment and that are not done. When no failure is left, the next generation
    /// begins: the failure was told, and now there may be a completion to tell.
    pub async fn batch_skip_tasks(&self, plan_id: i64, names: &[String]) -> Result<Plan> {
        let can_skip = |status| matches!(status, Status::NotStarted | Status::Pending | Status::Failed);
        let mut transaction = self.pool().begin().await?;
        let mut plan = hold(&mut transaction, plan_id).await?;
        hold_open_runs(&mut transaction, plan_id).await?;
        let before = tasks(&mut transaction, plan_id).await?;
        let chosen = choose(&before, Some(names), "skip", can_skip)?;
        sqlx::query(include_str!("../sql/skip_tasks.sql"))
            .bind(plan_id)
            .bind(&chosen)
            .execute(&mut *transaction)
            .await?;
        let after = tasks(&mut transaction, plan_id).await?;
        if has_failure(&before) && !has_failure(&after) {
            self.begin_generation(&mut transaction, &mut plan, "BatchSkipTasks").await?;
        }
        self.tell(&mut transaction, &plan, Change::TasksSettled, &after).await?;
        transaction.commit().await?;
        self.plan(plan_id).await
    }

    /// The plan's next generation, in Postrider and here.
    async fn begin_generation(&self, connection: &mut PgConnection, plan: &mut Held, by: &str) -> Result<()> {
        let operator = Operator(by.to_owned());
        plan.generation = self.store.reset_once_in(connection, DEFAULT_TENANT, &subject(plan.id), &operator).await?;
        sqlx::query(include_str!("../sql/begin_generation.sql"))
            .bind(plan.id)
            .bind(plan.generation.cast_signed())
            .execute(connection)
            .await?;
        Ok(())
    }

    /// Enqueues what a change gives to tell, in the transaction of that change.
    pub(crate) async fn tell(
        &self,
        connection: &mut PgConnection,
        plan: &Held,
        change: Change,
        tasks: &[Task],
    ) -> Result<()> {
        let Some(event) = notice(change, plan, tasks) else { return Ok(()) };
        let event_type = event.event_type.clone();
        match self.store.enqueue_in(connection, event).await {
            Ok(Enqueued::New { event_id, .. }) => {
                tracing::info!(plan = plan.id, generation = plan.generation, %event_id, "{event_type} will be told");
            }
            Ok(_) => tracing::debug!(plan = plan.id, generation = plan.generation, "told before: no {event_type}"),
            // A plan whose webhook is no longer allowed must still be able to end.
            Err(EnqueueError::Refused(refusal)) => {
                tracing::error!(plan = plan.id, code = refusal.code, "{event_type} cannot be told: {refusal}");
            }
            Err(EnqueueError::Store(error)) => return Err(error.into()),
            Err(EnqueueError::IdempotencyConflict { .. }) => unreachable!("notices have no idempotency key"),
        }
        Ok(())
    }
}

/// Holds a plan's row until the end of the transaction.
pub(crate) async fn hold(connection: &mut PgConnection, id: i64) -> Result<Held> {
    let row = sqlx::query_as(include_str!("../sql/lock_plan.sql")).bind(id).fetch_optional(connection).await?;
    let (title, webhook_url, generation): PlanRow = row.ok_or(Error::PlanNotFound(id))?;
    Ok(Held { id, title, webhook_url, generation: generation.cast_unsigned() })
}

async fn hold_open_runs(connection: &mut PgConnection, plan_id: i64) -> Result<()> {
    sqlx::query(include_str!("../sql/hold_open_runs.sql")).bind(plan_id).execute(connection).await?;
    Ok(())
}

pub(crate) async fn tasks(connection: &mut PgConnection, plan_id: i64) -> Result<Vec<Task>> {
    let rows: Vec<(String, String, Option<i32>)> =
        sqlx::query_as(include_str!("../sql/tasks.sql")).bind(plan_id).fetch_all(connection).await?;
    let task = |(name, status, attempt): (String, String, Option<i32>)| {
        let status = Status::from_database(&status)?;
        Ok(Task { name, status, attempt: attempt.map(i32::cast_unsigned) })
    };
    rows.into_iter().map(task).collect()
}

fn has_failure(tasks: &[Task]) -> bool {
    tasks.iter().any(|task| task.status == Status::Failed)
}

/// The names of the tasks to act on: all that allow it, or all of those that were named, or none.
fn choose(
    tasks: &[Task],
    names: Option<&[String]>,
    action: &str,
    allows: impl Fn(Status) -> bool,
) -> Result<Vec<String>> {
    let conflict = |code, detail| Err(Error::Conflict(Refusal::new(code, "tasks", detail)));
    let mut chosen = BTreeSet::new();
    match names {
        None => chosen.extend(tasks.iter().filter(|task| allows(task.status)).map(|task| &task.name)),
        Some(names) => {
            for name in names {
                let Some(task) = tasks.iter().find(|task| task.name == *name) else {
                    return Err(Refusal::new("task_unknown", "tasks", "the plan has no task of this name").into());
                };
                if !allows(task.status) {
                    let detail = format!("cannot {action} the task `{name}`: it is {:?}", task.status);
                    return conflict("task_state_forbids", detail);
                }
                chosen.insert(name);
            }
        }
    }
    if chosen.is_empty() {
        return conflict("no_tasks", format!("there is no task to {action}"));
    }
    Ok(chosen.into_iter().cloned().collect())
}
