-- What a settle needs of its delivery, and what its announcement copies, because an announcement may outlive its event.
select d.attempt_count, d.earlier_attempts, d.endpoint_id, d.tenant, d.event_id, e.topic, e.metadata
from postrider_deliveries d
join postrider_events e on e.id = d.event_id
where d.id = ?1
