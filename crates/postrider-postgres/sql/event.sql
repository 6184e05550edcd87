-- One event with its payload.
select e.id, e.tenant, e.type, e.payload, e.metadata, e.topic, e.created_at from postrider.events e where e.id = $1
