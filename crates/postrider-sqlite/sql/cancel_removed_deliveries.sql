-- A step through what was ever sent to the endpoint, newest first: what is scheduled is mostly young. There is no shorter
-- way, because an index on what is scheduled would be paid for by every delivery.
select id, next_attempt_at
from postrider_deliveries
where endpoint_id = ?1 and id <= ?2
order by id desc
limit ?3
