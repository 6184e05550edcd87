-- The newest position, and which of the last $1 numbers below it are not there: a transaction may have taken one and not
-- have committed yet.
with newest as materialized (
  select coalesce(max(a.position), 0) as position from postrider.announcements a
)
select n.position, pg_snapshot_xmin(s)::text::bigint as oldest_running,
       pg_snapshot_xmax(s)::text::bigint as next_transaction,
       array (
         select missing.position
         from generate_series(greatest(1, n.position - $1::bigint), n.position) as missing (position)
         where pg_snapshot_xmin(s) < pg_snapshot_xmax(s)
           and not exists (select from postrider.announcements a where a.position = missing.position)
         order by missing.position
       ) as missing
from newest n, pg_current_snapshot() s
