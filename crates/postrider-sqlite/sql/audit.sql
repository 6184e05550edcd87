-- Identifiers sort by time, so the primary key read backwards is newest first.
select id, at, operator, action, subject, reason
from postrider_audit
where ?1 is null or id < ?1
order by id desc
limit ?2
