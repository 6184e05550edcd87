-- The destination is frozen here: an endpoint that moves later does not move what was sent to it before.
insert into postrider_deliveries
  (id, event_id, tenant, endpoint_id, lane, destination_url, status, next_attempt_at, created_at)
values (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?8)
