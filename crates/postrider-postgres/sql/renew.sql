-- All the leases of one worker in one statement; one by one would take a hundred times as long. A lease only ever grows: a
-- heartbeat that was held up must not shorten what a later one granted.
--
-- A lease that is locked is passed over rather than waited for: it is being settled, or an earlier heartbeat is still at
-- it, and one that hangs must not let all the others lapse. Nobody can take it back meanwhile, since recovering passes
-- over locked leases as well. So it is still held, and the answer says so: it names every lease that was there.
--
-- Leases are looked up by their keys and then compared with what is given by hash. As a join this would be planned
-- while `leases` happens to be empty, and would then compare each of a thousand with each.
with given as materialized (
  select g.delivery_id, g.token from unnest($3::uuid[], $4::uuid[]) as g (delivery_id, token)
), free as materialized (
  select l.delivery_id
  from postrider.leases l
  where l.delivery_id = any ($3::uuid[]) and l.owner = $2
    and ((l.delivery_id, l.token) in (select g.delivery_id, g.token from given g)) is true
  order by l.delivery_id
  for update skip locked
), renewed as (
  update postrider.leases l
  set lease_until = greatest(l.lease_until, coalesce($1::timestamptz, clock_timestamp()) + $5::bigint * interval '1 microsecond')
  where l.delivery_id = any (array (select f.delivery_id from free f))
)
select l.delivery_id, l.token
from postrider.leases l
where l.delivery_id = any ($3::uuid[]) and l.owner = $2
  and ((l.delivery_id, l.token) in (select g.delivery_id, g.token from given g)) is true
