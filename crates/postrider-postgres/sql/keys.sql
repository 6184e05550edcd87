-- Keys of a tenant, or all of them, newest first.
select k.id, k.name, k.tenant, k.scope, k.created_at, k.revoked_at
from postrider.api_keys k
where ($1::text is null or k.tenant = $1) and ($2::uuid is null or k.id < $2)
order by k.id desc
limit $3::int
