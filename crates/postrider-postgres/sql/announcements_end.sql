-- The newest position, and which of the last $1 rows below it are not there: a transaction may have taken the number of one
-- and not have committed yet. For `next_transaction` see announcements.sql.
with newest as materialized (
  select coalesce(max(a.position), 0) as position from postrider.announced a
), below as materialized (
  select n.position + coalesce((select a.count - 1 from postrider.announced a where a.position = n.position), 0) as position,
         array (
           select missing.position
           from generate_series(greatest(1000, (n.position / 1000 - $1::bigint) * 1000), n.position, 1000) as missing (position)
           where not exists (select from postrider.announced a where a.position = missing.position)
           order by missing.position
         ) as missing
  from newest n
)
select b.position, pg_snapshot_xmin(s)::text::bigint as oldest_running,
       case when cardinality(b.missing) > 0
            then pg_current_xact_id()::text::bigint
            else pg_snapshot_xmax(s)::text::bigint end as next_transaction,
       b.missing
from below b, pg_current_snapshot() s
