-- Newest first, by an id that sorts by time.
select a.id, a.at, a.operator, a.action, a.subject, a.reason
from postrider.audit a
where a.id < coalesce($1::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by a.id desc
limit $2::int
