-- What is where, counted exactly and in one snapshot. What is unsettled, dead or cancelled is counted in its place, and what
-- was delivered is the rest: to count all deliveries takes a walk along an index, to look at the status of each would
-- take a walk along the table.
with unsettled as materialized (
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
  select (select count(*) from postrider.dead_letters x
          where $2::text is null or exists (
            select from postrider.deliveries d where d.id = x.delivery_id and d.tenant = $2)) as dead,
         (select count(*) from postrider.cancelled x
          where $2::text is null or exists (
            select from postrider.deliveries d where d.id = x.delivery_id and d.tenant = $2)) as cancelled,
         (select count(*) from postrider.deliveries d where $2::text is null or d.tenant = $2) as total
), told as (
  select count(*) filter (where a.fact = 'delivery.delivered') as delivered,
         count(*) filter (where a.fact = 'delivery.failed') as failed,
         count(*) filter (where a.fact = 'delivery.dead') as dead
  from postrider.announcements a
  where a.at > coalesce($1::timestamptz, statement_timestamp()) - interval '1 minute'
    and ($2::text is null
         or exists (select from postrider.events e where e.id = a.event_id and e.tenant = $2)
         or exists (select from postrider.removed_events x where x.event_id = a.event_id and x.tenant = $2))
)
select c.pending, c.failed, s.total - c.pending - c.failed - s.dead - s.cancelled as delivered, s.dead, s.cancelled,
       c.due, c.in_flight, c.scheduled,
       (extract(epoch from coalesce($1::timestamptz, statement_timestamp()) - c.first_due) * 1000000)::bigint as oldest_due_age,
       t.delivered as told_delivered, t.failed as told_failed, t.dead as told_dead
from counted c, settled s, told t
