-- What was recorded after a position, and what of the gaps below it has been filled since; with the snapshot's bounds, from
-- which the reader tells when a gap can no longer be filled. It is one statement, so that rows and bounds are of the same
-- snapshot.
--
-- A row tells of up to a thousand deliveries, and has as many positions (see 0007_announced.sql). The place after which is to
-- be read ($1) may be in the middle of a row, and so may a gap ($2), if a page ended there. A gap from before
-- rows were lists is a row of its own. Of the rows as many are taken as fill the page.
--
-- Tenant, topic and metadata are the event's; retention keeps them aside for the young announcements of what it removes.
--
-- `next_transaction` is above every transaction id that was given out before the snapshot. The snapshot's own upper bound is
-- not: it is above those that have ended, and one that runs may have a higher id. So where a row is missing,
-- an id is taken to know; otherwise nobody asks for it.
with found as materialized (
  select f.* from (
    select u.*, sum(u.position + u.count - u.first) over (order by u.position) - (u.position + u.count - u.first) as before
    from (
      (select a.*, greatest(a.position, gap.first) as first
       from unnest($2::bigint[]) as gap (first)
       cross join lateral (
         select a.* from postrider.announced a
         where a.position = any (array[gap.first, gap.first - gap.first % 1000]) and a.position + a.count > gap.first
         offset 0
       ) a)
      union all
      (select a.*, greatest(a.position, $1 + 1) as first
       from postrider.announced a
       where a.position > $1 - 1000 and a.position + a.count - 1 > $1
       order by a.position
       limit $3::int)
    ) u
  ) f
  where f.before < $3::int
), bounds as materialized (
  select pg_snapshot_xmin(s)::text::bigint as oldest_running,
         case when (select max(f.position) / 1000 - $1 / 1000 > count(*) filter (where f.position % 1000 = 0)
                    from found f where f.position > $1)
              then pg_current_xact_id()::text::bigint
              else pg_snapshot_xmax(s)::text::bigint end as next_transaction
  from pg_current_snapshot() s
)
select b.oldest_running, b.next_transaction, told.*
from bounds b
left join (
  select t.position, t.fact, t.delivery_id, t.event_id, t.endpoint_id, t.attempt_count, t.at,
         coalesce(e.tenant, x.tenant) as tenant, coalesce(e.topic, x.topic) as topic,
         coalesce(e.metadata, x.metadata) as metadata
  from (
    select f.position + l.n - 1 as position, f.fact, f.at, l.delivery_id, l.event_id, l.endpoint_id, l.attempt_count
    from found f
    cross join lateral unnest(f.delivery_ids, f.event_ids, f.endpoint_ids, f.attempt_counts)
      with ordinality as l (delivery_id, event_id, endpoint_id, attempt_count, n)
    where f.position + l.n - 1 >= f.first
    order by f.position + l.n - 1
    limit $3::int
  ) t
  left join postrider.events e on e.id = t.event_id
  left join postrider.removed_events x on x.event_id = t.event_id
) told on true
order by told.position
