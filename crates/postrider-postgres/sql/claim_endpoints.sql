-- All that a claim needs of its endpoints, in one statement for the whole claim. One that was removed is not there.
select e.id, e.tenant, e.url, e.event_types, e.status, e.status_reason, e.settings, e.revision, e.failing_since, e.created_at
from postrider.endpoints e
where e.id = any ($1::uuid[]) and e.status <> 'removed'
