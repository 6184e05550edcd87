-- With its payload: the only place that reads it besides a claim.
select tenant, event_type, payload, metadata, topic, created_at
from postrider_events
where id = ?1
