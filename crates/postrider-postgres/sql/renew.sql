-- All the leases of one worker in one statement; one by one would take a hundred times as long. A lease only ever grows: a
-- heartbeat that was held up must not shorten what a later one granted.
--
-- A lease that is locked is passed over rather than waited for: it is being settled, or an earlier heartbeat is still at
-- it, and one that hangs must not let all the others lapse. Nobody can take it back meanwhile, since recovering passes
-- over locked leases as well. So it is still held, and the answer says so: it names every lease that was there.
with given as materialized (
  select g.delivery_id, g.token from unnest($3::uuid[], $4::uuid[]) as g (delivery_id, token)
), free as materialized (
  select l.delivery_id
  from given g
  join postrider.leases l on l.delivery_id = g.delivery_id and l.token = g.token and l.owner = $2
  order by l.delivery_id
  for update of l skip locked
), renewed as (
  update postrider.leases l
  set lease_until = greatest(l.lease_until, coalesce($1::timestamptz, clock_timestamp()) + $5::bigint * interval '1 microsecond')
  from free f
  where l.delivery_id = f.delivery_id
)
select l.delivery_id, l.token
from given g
join postrider.leases l on l.delivery_id = g.delivery_id and l.token = g.token and l.owner = $2
