-- The settings contain secrets, sealed. What was removed is there only for the sake of its deliveries.
select id, tenant, url, event_types, status, status_reason, revision, failing_since, settings, created_at
from postrider_endpoints
where id = ?1 and status <> 'removed'
