-- Asked for every request that somebody makes: one seek in the unique index.
select id, name, tenant, scope, created_at, revoked_at
from postrider_api_keys
where digest = ?1 and revoked_at is null
