-- The settings contain secrets, and are only read by whoever signs or shows an endpoint to its owner.
select id, tenant, url, event_types, status, status_reason, settings, created_at
from postrider_endpoints
where id = ?1
