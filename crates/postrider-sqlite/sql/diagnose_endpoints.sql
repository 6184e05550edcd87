-- Every endpoint, one at a time: a diagnosis may take a while.
select id, tenant, settings
from postrider_endpoints
where status <> 'removed'
order by id
