-- Begins the next generation of a subject that once_reset_hold.sql holds, and puts the winner of the one that ends aside.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), ending as materialized (
  select o.* from postrider.once o where o.tenant = $2 and o.subject = $3
), past as (
  insert into postrider.past_generations (tenant, subject, generation, event_id, event_type, claimed_at, ended_at)
  select e.tenant, e.subject, e.generation, e.event_id, e.event_type, e.claimed_at, c.at from ending e, clock c
  where e.event_id is not null
), begun as (
  update postrider.once o
  set generation = e.generation + 1, event_id = null, event_type = null, claimed_at = null
  from ending e
  where o.tenant = e.tenant and o.subject = e.subject
  returning o.generation
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  select postrider.new_id(), c.at, $2, $4, 'once.reset', $3, format('generation %s begins', b.generation) from begun b, clock c
)
select b.generation from begun b
