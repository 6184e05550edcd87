-- Identifiers sort by time, so the primary key, or the index of a tenant, read backwards is newest first.
select id, at, tenant, operator, action, subject, reason
from postrider_audit
where {conditions}
order by id desc
limit :limit
