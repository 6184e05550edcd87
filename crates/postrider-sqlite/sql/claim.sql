-- The front of one lane, with all that an attempt needs. CROSS JOIN keeps the order of the tables, whatever the
-- statistics say: a range of the lane first, then one lookup each by primary key.
select r.position, d.id as delivery_id, d.tenant, d.event_id, e.event_type, e.payload, d.destination_url,
       d.attempt_count, d.earlier_attempts, d.abandoned_count, d.endpoint_id, e.topic, e.metadata
from postrider_ready r
cross join postrider_deliveries d on d.id = r.delivery_id
cross join postrider_events e on e.id = d.event_id
where r.lane = ?1
order by r.position
limit ?2
