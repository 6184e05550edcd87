-- The limits are kept beside the settings that contain them, since claims compute with them. An endpoint that has one has a
-- meter, which begins with a full bucket.
with made as (
  insert into postrider.endpoints (id, tenant, url, event_types, settings, max_in_flight, rate_per_second, rate_burst, created_at)
  values (postrider.new_id(), $2, $3, $4, $5, $6, $7, $8, coalesce($1::timestamptz, clock_timestamp()))
  returning *
), metered as (
  insert into postrider.meters (lane, tokens, refilled_at)
  select m.lane, coalesce(m.rate_burst, 0), m.created_at from made m
  where m.max_in_flight is not null or m.rate_per_second is not null
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject)
  select postrider.new_id(), m.created_at, m.tenant, $9, 'endpoint.create', m.id::text from made m
)
select m.id, m.tenant, m.url, m.event_types, m.status, m.status_reason, m.settings, m.revision, m.failing_since, m.created_at
from made m
