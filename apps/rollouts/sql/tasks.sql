-- A task stands as its latest run does.
select t.name, case when t.skipped then 'skipped' else coalesce(r.status, 'not_started') end as status, r.attempt
from rollouts.tasks t
left join lateral (
  select r.status, r.attempt from rollouts.task_runs r
  where r.plan_id = t.plan_id and r.task = t.name
  order by r.attempt desc
  limit 1
) r on true
where t.plan_id = $1
order by t.position
