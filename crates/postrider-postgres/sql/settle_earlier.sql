-- Which of these leases were consumed by an attempt that is on record: an earlier call whose answer was lost. A
-- statement of its own, since that call may have committed while settle.sql waited for its lock.
select g.n - 1 as index
from unnest($1::uuid[], $2::uuid[]) with ordinality as g (delivery_id, token, n)
where exists (select from postrider.attempts a where a.delivery_id = g.delivery_id and a.token = g.token)
