-- A plan and its tasks, which keep their order.
with plan as (
  insert into rollouts.plans (title, webhook_url) values ($1, $2) returning id
), tasks as (
  insert into rollouts.tasks (plan_id, name, position, script)
  select p.id, t.name, t.position, t.script
  from plan p, unnest($3::text[], $4::jsonb[]) with ordinality as t (name, script, position)
)
select id from plan
