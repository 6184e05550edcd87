-- What was recorded after a position, and those of the gaps below it that have been filled since; with the snapshot's
-- bounds, from which the reader tells when a gap can no longer be filled. It is one statement, so that rows and bounds
-- are of the same snapshot.
--
-- Tenant, topic and metadata are the event's; retention keeps them aside for the young announcements of what it removes.
--
-- `next_transaction` is above every transaction id that was given out before the snapshot. The snapshot's own upper bound is
-- not: it is above those that have ended, and one that runs may have a higher id. So where a number is missing,
-- an id is taken to know; otherwise nobody asks for it.
with found as materialized (
  (select a.* from postrider.announcements a where a.position = any ($2::bigint[]) order by a.position limit $3::int)
  union all
  (select a.* from postrider.announcements a where a.position > $1 order by a.position limit $3::int)
), bounds as materialized (
  select pg_snapshot_xmin(s)::text::bigint as oldest_running,
         case when (select max(f.position) - $1 > count(*) from found f where f.position > $1)
              then pg_current_xact_id()::text::bigint
              else pg_snapshot_xmax(s)::text::bigint end as next_transaction
  from pg_current_snapshot() s
)
select b.oldest_running, b.next_transaction, told.*
from bounds b
left join (
  select f.position, f.fact, f.delivery_id, f.event_id, f.endpoint_id, f.attempt_count, f.at,
         coalesce(e.tenant, x.tenant) as tenant, coalesce(e.topic, x.topic) as topic,
         coalesce(e.metadata, x.metadata) as metadata
  from (select f.* from found f order by f.position limit $3::int) f
  left join postrider.events e on e.id = f.event_id
  left join postrider.removed_events x on x.event_id = f.event_id
) told on true
order by told.position
