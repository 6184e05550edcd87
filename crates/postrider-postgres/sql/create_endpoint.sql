-- `max_in_flight` is kept beside the settings that contain it, since claims compute with it.
insert into postrider.endpoints (id, tenant, url, event_types, settings, max_in_flight, created_at)
values (postrider.new_id(), $2, $3, $4, $5, $6, coalesce($1::timestamptz, clock_timestamp()))
returning id, tenant, url, event_types, status, status_reason, settings, created_at
