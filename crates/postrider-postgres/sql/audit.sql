-- Newest first, by an id that sorts by time. It is planned for its values: a tenant's trail has an index of its own.
select a.id, a.at, a.tenant, a.operator, a.action, a.subject, a.reason
from postrider.audit a
where a.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') and ($3::text is null or a.tenant = $3)
order by a.id desc
limit $2::int
