-- The one endpoint that an event names, if it is the tenant's own and takes events.
select url
from postrider_endpoints
where id = ?1 and tenant = ?2 and status in ('active', 'paused')
