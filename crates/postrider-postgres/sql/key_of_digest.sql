-- The key that somebody has shown, by its digest.
select k.id, k.name, k.tenant, k.scope, k.created_at, k.revoked_at
from postrider.api_keys k
where k.digest = $1 and k.revoked_at is null
