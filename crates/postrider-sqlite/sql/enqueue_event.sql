-- The payload is a blob, so that the bytes that are sent and signed are the bytes that were accepted.
insert into postrider_events (id, tenant, event_type, payload, metadata, topic, created_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
