-- Identifiers sort by time, so the primary key read backwards is newest first. The first page begins below the highest
-- identifier that there can be.
select id, at, operator, action, subject, reason
from postrider_audit
where id < ?1
order by id desc
limit ?2
