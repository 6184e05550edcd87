-- Takes back leases that have expired. `leases` is as small as what is in flight, so it is read through; a lease that
-- its holder is settling or renewing at this moment is locked, and passed over.
--
-- A delivery that was abandoned too often in a row is dead: it may be what crashes its workers. Listeners that lapsed long
-- ago are swept out on the way.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), expired as materialized (
  select l.delivery_id from postrider.leases l
  where l.lease_until <= coalesce($1::timestamptz, statement_timestamp())
  order by l.lease_until, l.delivery_id
  limit $2::int
  for update skip locked
), taken as (
  delete from postrider.leases l
  where l.delivery_id = any (array (select e.delivery_id from expired e))
  returning l.delivery_id, l.lane
), counted as (
  update postrider.deliveries d
  set abandoned_count = d.abandoned_count + 1,
      status = case when d.abandoned_count + 1 >= $3::int then 'dead' else d.status end,
      next_attempt_at = case when d.abandoned_count + 1 >= $3::int then null else d.next_attempt_at end,
      error_detail = case when d.abandoned_count + 1 >= $3::int
                          then format('abandoned: %s claims in a row expired unsettled', d.abandoned_count + 1)
                          else d.error_detail end
  from taken t
  where d.id = t.delivery_id
  returning d.id, d.event_id, d.endpoint_id, d.status, d.attempt_count, t.lane
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select n.lane, n.id from counted n where n.status <> 'dead' order by n.id
  returning delivery_id
), buried as (
  insert into postrider.dead (delivery_id, reason, died_at)
  select n.id, 'abandoned', c.at from counted n, clock c where n.status = 'dead'
), announced as (
  insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
  select 'delivery.dead', 1, c.at, array[n.id], array[n.event_id], array[n.endpoint_id], array[n.attempt_count]
  from counted n, clock c where n.status = 'dead' order by n.id
  returning position
), lapsed as (
  delete from postrider.listeners
  where ctid = any (array (select l.ctid from postrider.listeners l
                           where l.until < statement_timestamp() - interval '1 minute' for update skip locked))
), notified as (
  select pg_notify('postrider_' || l.channel, '')
  from (select distinct l.channel from postrider.listeners l where l.until > statement_timestamp()) l
  where (l.channel = 'ready' and exists (select from made_ready))
     or (l.channel = 'announced' and exists (select from announced))
)
select count(*) filter (where n.status <> 'dead') as returned, count(*) filter (where n.status = 'dead') as dead,
       (select count(*) from notified) as notified
from counted n
