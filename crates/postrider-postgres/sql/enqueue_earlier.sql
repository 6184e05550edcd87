-- Who has these idempotency keys. A statement of its own, so that its snapshot is taken after the insert that lost
-- against them. Each is looked up by itself (OFFSET 0 keeps it that way): planned while there are none, a join would read all
-- of them when there are many.
select k.tenant, k.key, k.event_id, k.fingerprint
from unnest($1::text[], $2::text[]) as wanted (tenant, key)
cross join lateral (
  select k.tenant, k.key, k.event_id, k.fingerprint from postrider.idempotency_keys k
  where k.tenant = wanted.tenant and k.key = wanted.key
  offset 0
) k
