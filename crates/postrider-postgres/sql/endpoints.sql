-- Endpoints that match, newest first. Planned for its values, so that a tenant's are found by their own index.
select e.id, e.tenant, e.url, e.event_types, e.status, e.status_reason, e.settings, e.revision, e.failing_since, e.created_at
from postrider.endpoints e
where e.status <> 'removed'
  and ($1::text is null or e.tenant = $1)
  and ($2::text is null or e.status = $2)
  and ($3::uuid is null or e.id < $3)
order by e.id desc
limit $4::int
