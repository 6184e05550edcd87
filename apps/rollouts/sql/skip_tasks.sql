-- Skips tasks; what waits for a replica will not be run.
with skipped as (
  update rollouts.tasks set skipped = true where plan_id = $1 and name = any($2)
)
update rollouts.task_runs set status = 'cancelled' where plan_id = $1 and task = any($2) and status = 'pending'
