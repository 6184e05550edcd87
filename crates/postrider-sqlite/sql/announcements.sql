-- There is one writer at a time, so positions are the order of commits: nothing ever appears below the last one read.
select position, tenant, topic, fact, delivery_id, event_id, endpoint_id, attempt_count, metadata, at
from postrider_announcements
where position > ?1
order by position
limit ?2
