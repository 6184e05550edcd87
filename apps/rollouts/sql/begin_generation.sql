-- A plan's next generation. Runs that are still open are part of it: how they end is news again.
with plan as (
  update rollouts.plans set generation = $2 where id = $1
)
update rollouts.task_runs set generation = $2 where plan_id = $1 and status in ('pending', 'running')
