-- Makes deliveries due at once. Each is taken out of the place where it rests: a dead letter, the schedule, or, for a
-- cancelled one, its own row. Whoever takes it out decides, so that of two operators one retries and the other is told
-- that it is due. In `scheduled` a delivery is found by its due time, which its record repeats.
--
-- A dead or cancelled delivery begins a new round: the attempts of the old one are added to `earlier_attempts`.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), wanted as materialized (
  select w.id from unnest($2::uuid[]) as w (id) order by w.id
), dug_up as (
  delete from postrider.dead x using wanted w where x.delivery_id = w.id
  returning x.delivery_id as id
), unscheduled as (
  delete from postrider.scheduled s
  using wanted w, postrider.deliveries d
  where d.id = w.id and d.status = 'failed' and s.due_at = d.next_attempt_at and s.delivery_id = d.id
  returning s.delivery_id as id
), uncancelled as materialized (
  select d.id from wanted w join postrider.deliveries d on d.id = w.id
  where d.status = 'cancelled' order by d.id for update of d
), unlisted as (
  delete from postrider.cancelled x using uncancelled u where x.delivery_id = u.id
), moved as (
  update postrider.deliveries d
  set status = case when d.status = 'failed' then 'failed' else 'pending' end,
      earlier_attempts = d.earlier_attempts + case when d.status = 'failed' then 0 else d.attempt_count end,
      attempt_count = case when d.status = 'failed' then d.attempt_count else 0 end,
      abandoned_count = case when d.status = 'failed' then d.abandoned_count else 0 end,
      error_detail = case when d.status = 'failed' then d.error_detail end,
      next_attempt_at = c.at
  from (select id from dug_up union all select id from unscheduled union all select id from uncancelled) x, clock c
  where d.id = x.id
  returning d.id, d.tenant, d.lane
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select m.lane, m.id from moved m order by m.id
  returning delivery_id
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject)
  select postrider.new_id(), c.at, m.tenant, $3, 'delivery.retry', m.id::text from (select * from moved order by id) m, clock c
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from made_ready)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select count(*) as retried, (select count(*) from notified) as notified from made_ready
