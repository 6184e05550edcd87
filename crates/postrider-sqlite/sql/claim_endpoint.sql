-- The endpoint of a lane, whatever became of it: a lane without a row here is that of a bare destination.
select id, tenant, url, event_types, status, status_reason, revision, failing_since, settings, created_at
from postrider_endpoints
where id = ?1
