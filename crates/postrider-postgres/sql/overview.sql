-- What is where, counted exactly and in one snapshot. What is unsettled, dead or cancelled is counted in its place, and what
-- was delivered is the rest: to count all deliveries takes a walk along an index, to look at the status of each would
-- take a walk along the table.
--
-- What is announced is numbered almost in the order of time, in steps of a thousand, so that what was told in the last minute
-- is at the end, and needs no index: `back` goes back in growing steps until it comes to a row that is two minutes old.
-- Whose the events are is looked up one by one: a subquery that could be a hash table would be made from all events of the
-- tenant.
with recursive unsettled as materialized (
  select x.place, d.status, count(*) as count, min(d.next_attempt_at) as first_due
  from (
    select 'ready' as place, r.delivery_id from postrider.ready r
    union all select 'leased', l.delivery_id from postrider.leases l
    union all select 'scheduled', s.delivery_id from postrider.scheduled s
  ) x
  join postrider.deliveries d on d.id = x.delivery_id
  where $2::text is null or d.tenant = $2
  group by x.place, d.status
), counted as materialized (
  select coalesce(sum(u.count) filter (where u.status = 'pending'), 0)::bigint as pending,
         coalesce(sum(u.count) filter (where u.status = 'failed'), 0)::bigint as failed,
         coalesce(sum(u.count) filter (where u.place = 'ready'), 0)::bigint as due,
         coalesce(sum(u.count) filter (where u.place = 'leased'), 0)::bigint as in_flight,
         coalesce(sum(u.count) filter (where u.place = 'scheduled'), 0)::bigint as scheduled,
         min(u.first_due) filter (where u.place = 'ready') as first_due
  from unsettled u
), settled as materialized (
  select (select count(*) from postrider.dead x
          where $2::text is null
             or $2 = (select d.tenant from postrider.deliveries d where d.id = x.delivery_id)) as dead,
         (select count(*) from postrider.cancelled x
          where $2::text is null
             or $2 = (select d.tenant from postrider.deliveries d where d.id = x.delivery_id)) as cancelled,
         (select count(*) from postrider.deliveries d where $2::text is null or d.tenant = $2) as total
), newest as materialized (
  select coalesce($1::timestamptz, statement_timestamp()) - interval '1 minute' as since, max(a.position) as position
  from postrider.announced a
), back (step, position, at) as (
  select 0, n.position, 'infinity'::timestamptz from newest n
  union all
  select b.step + 1, earlier.position, earlier.at
  from back b
  cross join newest n
  cross join lateral (
    select a.position, a.at from postrider.announced a
    where a.position <= n.position - (64000::bigint << b.step) order by a.position desc limit 1
  ) earlier
  where b.at > n.since - interval '1 minute' and b.step < 40
), told as (
  select coalesce(sum(told.count) filter (where a.fact = 'delivery.delivered'), 0)::bigint as delivered,
         coalesce(sum(told.count) filter (where a.fact = 'delivery.failed'), 0)::bigint as failed,
         coalesce(sum(told.count) filter (where a.fact = 'delivery.dead'), 0)::bigint as dead
  from newest n
  join postrider.announced a
    on a.position > coalesce((select max(b.position) from back b where b.at <= n.since - interval '1 minute'), 0)
  cross join lateral (
    select case when $2::text is null then a.count
                else (select count(*)
                      from unnest(a.event_ids) as event (id)
                      where $2 = coalesce((select e.tenant from postrider.events e where e.id = event.id),
                                          (select x.tenant from postrider.removed_events x where x.event_id = event.id)))
           end as count
  ) told
  where a.at > n.since
)
select c.pending, c.failed, s.total - c.pending - c.failed - s.dead - s.cancelled as delivered, s.dead, s.cancelled,
       c.due, c.in_flight, c.scheduled,
       (extract(epoch from coalesce($1::timestamptz, statement_timestamp()) - c.first_due) * 1000000)::bigint as oldest_due_age,
       t.delivered as told_delivered, t.failed as told_failed, t.dead as told_dead
from counted c, settled s, told t
