-- One more run for each of these tasks.
insert into rollouts.task_runs (plan_id, task, attempt)
select t.plan_id, t.name, coalesce(max(r.attempt) + 1, 0)
from rollouts.tasks t
left join rollouts.task_runs r on r.plan_id = t.plan_id and r.task = t.name
where t.plan_id = $1 and t.name = any($2)
group by t.plan_id, t.name, t.position
order by t.position
