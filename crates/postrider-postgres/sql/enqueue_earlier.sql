-- Who has these idempotency keys. A statement of its own, so that its snapshot is taken after the insert that lost
-- against them.
select k.tenant, k.key, k.event_id, k.fingerprint
from unnest($1::text[], $2::text[]) as wanted (tenant, key)
join postrider.idempotency_keys k on k.tenant = wanted.tenant and k.key = wanted.key
