-- The oldest run that waits, or that its replica no longer holds. The random token tells this claim from every other.
with next as materialized (
  select r.id from rollouts.task_runs r
  where r.status in ('pending', 'running') and (r.status = 'pending' or r.lease_until < clock_timestamp())
  order by r.id
  limit 1
  for update skip locked
)
update rollouts.task_runs r
set status = 'running', owner = $1, token = gen_random_uuid(),
    lease_until = clock_timestamp() + $2 * interval '1 millisecond'
from next n, rollouts.tasks t
where r.id = n.id and t.plan_id = r.plan_id and t.name = r.task
returning r.id, r.plan_id, r.task, r.attempt, r.token, t.script
