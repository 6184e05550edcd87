-- Stops a delivery wherever it waits or flies. It is taken out of its place first, and only whoever took it out may mark
-- it: an attempt under way then finds its lease gone, and a settle that came first leaves nothing to cancel. In `ready`
-- it has to be looked for along its lane; that is an operator's single action, not worth an index that every
-- delivery would pay for.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), wanted as materialized (
  select d.id, d.lane, d.next_attempt_at from postrider.deliveries d
  where d.id = $2 and d.status in ('pending', 'failed')
), unleased as (
  delete from postrider.leases l using wanted w where l.delivery_id = w.id returning l.delivery_id as id
), unscheduled as (
  delete from postrider.scheduled s using wanted w
  where s.due_at = w.next_attempt_at and s.delivery_id = w.id
  returning s.delivery_id as id
), unreadied as (
  delete from postrider.ready r using wanted w
  where r.lane = w.lane and r.delivery_id = w.id
  returning r.delivery_id as id
), moved as (
  update postrider.deliveries d
  set status = 'cancelled', next_attempt_at = null, error_detail = $3
  from (select id from unleased union all select id from unscheduled union all select id from unreadied) x
  where d.id = x.id
  returning d.id, d.tenant, d.event_id, d.endpoint_id, d.attempt_count
), kept as (
  insert into postrider.cancelled (delivery_id) select m.id from moved m on conflict do nothing
), announced as (
  insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
  select 'delivery.cancelled', 1, c.at, array[m.id], array[m.event_id], array[m.endpoint_id], array[m.attempt_count]
  from moved m, clock c
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  select postrider.new_id(), c.at, m.tenant, $4, 'delivery.cancel', m.id::text, $3 from moved m, clock c
), notified as (
  select pg_notify('postrider_announced', '')
  where exists (select from moved)
    and exists (select from postrider.listeners l where l.channel = 'announced' and l.until > statement_timestamp())
)
select count(*) as cancelled, (select count(*) from notified) as notified from moved
