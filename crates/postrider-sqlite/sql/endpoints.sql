-- Newest first: the primary key, or the index of a tenant, read backwards.
select id, tenant, url, event_types, status, status_reason, revision, failing_since, settings, created_at
from postrider_endpoints
where status <> 'removed' and {conditions}
order by id desc
limit :limit
