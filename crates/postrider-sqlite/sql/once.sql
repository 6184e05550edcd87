-- The newest generation is the current one: one seek from the end of the subject's range of the primary key.
select generation, event_id, event_type, claimed_at
from postrider_once
where tenant = ?1 and subject = ?2
order by generation desc
limit 1
