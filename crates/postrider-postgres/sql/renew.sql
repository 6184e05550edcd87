-- All the leases of one worker in one statement; one by one would take a hundred times as long. The rows are locked in the
-- order of their ids first, as settling does, so that a heartbeat and a settle of the same worker do not deadlock. A
-- lease only ever grows: a heartbeat that was held up must not shorten what a later one granted.
with held as materialized (
  select l.delivery_id, l.token
  from unnest($3::uuid[], $4::uuid[]) as g (delivery_id, token)
  join postrider.leases l on l.delivery_id = g.delivery_id and l.token = g.token and l.owner = $2
  order by l.delivery_id
  for update of l
)
update postrider.leases l
set lease_until = greatest(l.lease_until, coalesce($1::timestamptz, clock_timestamp()) + $5::bigint * interval '1 microsecond')
from held h
where l.delivery_id = h.delivery_id
returning l.delivery_id, l.token
