-- There are few keys, so those of one tenant are found among all of them.
select id, name, tenant, scope, created_at, revoked_at
from postrider_api_keys
where id < ?1 and (?2 is null or tenant = ?2)
order by id desc
limit ?3
