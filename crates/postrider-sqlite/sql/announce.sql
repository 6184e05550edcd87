-- Reads the delivery as it stands in this transaction, so it comes after the update that makes the fact true. Tenant,
-- topic and metadata are copied, because an announcement may outlive its event.
insert into postrider_announcements
  (tenant, topic, fact, delivery_id, event_id, endpoint_id, attempt_count, metadata, at)
select d.tenant, e.topic, ?2, d.id, d.event_id, d.endpoint_id, d.attempt_count, e.metadata, ?3
from postrider_deliveries d
join postrider_events e on e.id = d.event_id
where d.id = ?1
