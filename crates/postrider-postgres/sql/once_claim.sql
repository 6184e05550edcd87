-- Claims subjects for events that are then written under the ids that this returns. It is not part of enqueue.sql, which all
-- events go through, and which it would make slower by a third.
--
-- A subject whose winner is known already is not touched, so that those who come late do not queue up behind each other;
-- whoever comes while a claim is under way waits at the row, and takes it if that claim is rolled back. Nor is a subject
-- touched for an idempotency key that is known: it is an earlier event's. A list names each subject once, as the caller
-- sees to it (batch.rs), and subjects are claimed in order, so that lists with the same ones do not deadlock. Subjects and keys
-- are looked up one by one, whatever there was when this was planned: OFFSET 0 keeps it that way.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), given as materialized (
  select g.*, coalesce(g.brought_id, postrider.new_id()) as event_id
  from unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::uuid[]) with ordinality
    as g (tenant, subject, generation, type, key, brought_id, n)
), claimed as (
  insert into postrider.once as o (tenant, subject, generation, event_id, event_type, claimed_at)
  select g.tenant, g.subject, 1, g.event_id, g.type, c.at
  from given g
  cross join clock c
  left join lateral (
    select s.generation, s.event_id from postrider.once s where s.tenant = g.tenant and s.subject = g.subject offset 0
  ) standing on true
  where standing.event_id is null
    and coalesce(g.generation, standing.generation, 1) = coalesce(standing.generation, 1)
    and not exists (select from postrider.idempotency_keys k where k.tenant = g.tenant and k.key = g.key offset 0)
  order by g.tenant collate "C", g.subject collate "C"
  on conflict (tenant, subject) do update
  set event_id = excluded.event_id, event_type = excluded.event_type, claimed_at = excluded.claimed_at
  where o.event_id is null
    and exists (select from given g
                where g.event_id = excluded.event_id and coalesce(g.generation, o.generation) = o.generation)
  returning o.event_id
)
select g.n - 1 as index, g.event_id
from claimed x
join given g on g.event_id = x.event_id
