-- Cancels up to $3 deliveries that wait for an endpoint that was removed: this one, or any. What is in flight is settled as
-- usual; if that is to be tried again, or if somebody who had read the endpoint before it was removed commits later, the
-- next call finds it.
--
-- In `ready` a lane has an index. In `scheduled` it has none, so the whole table is read, but only for endpoints of which
-- something may be there: one is cleared when nothing was found, nothing is in flight, and it was removed so long ago
-- that nobody can still be enqueueing for it. Should somebody be, the delivery is found in `ready` when it is due.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), removed as materialized (
  select e.id, e.lane, e.is_cleared, e.removed_at from postrider.endpoints e
  where e.status = 'removed' and ($2::uuid is null or e.id = $2)
), waiting as materialized (
  select x.tid
  from removed e
  cross join lateral (
    select r.ctid as tid from postrider.ready r
    where r.lane = e.lane order by r.position limit $3::int for update skip locked
  ) x
  limit $3::int
), unreadied as (
  delete from postrider.ready r
  where r.ctid = any (array (select w.tid from waiting w))
  returning r.delivery_id as id
), timed as materialized (
  select s.ctid as tid from postrider.scheduled s
  where exists (select from removed e where not e.is_cleared)
    and s.lane = any (array (select e.lane from removed e where not e.is_cleared))
  limit $3::int - (select count(*) from waiting)
  for update skip locked
), unscheduled as (
  delete from postrider.scheduled s
  where s.ctid = any (array (select t.tid from timed t))
  returning s.delivery_id as id
), moved as (
  update postrider.deliveries d
  set status = 'cancelled', next_attempt_at = null, error_detail = 'the endpoint was removed'
  from (select u.id from unreadied u union all select u.id from unscheduled u) x
  where d.id = x.id
  returning d.id, d.event_id, d.endpoint_id, d.attempt_count
), kept as (
  insert into postrider.cancelled (delivery_id) select m.id from moved m on conflict do nothing
), announced as (
  insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
  select 'delivery.cancelled', 1, c.at, array[m.id], array[m.event_id], array[m.endpoint_id], array[m.attempt_count]
  from (select * from moved order by id) m, clock c
), cleared as (
  update postrider.endpoints
  set is_cleared = true
  where id = any (array (
    select e.id from removed e, clock c
    where not e.is_cleared
      and e.removed_at < c.at - interval '1 hour'
      and not exists (select from moved)
      and not exists (select from postrider.leases l where l.lane = e.lane)))
), notified as (
  select pg_notify('postrider_announced', '')
  where exists (select from moved)
    and exists (select from postrider.listeners l where l.channel = 'announced' and l.until > statement_timestamp())
)
select count(*) as cancelled, (select count(*) from notified) as notified from moved
