-- Writes an endpoint if nobody has since the caller read it. A limit that is new begins with a full bucket, and counts what is
-- in flight already; one that is wider may let something go, so dispatchers are woken. Leases are locked in the order in
-- which settling and renewing take them.
with changed as (
  update postrider.endpoints e
  set url = $4, event_types = $5, settings = $6, max_in_flight = $7, rate_per_second = $8, rate_burst = $9,
      revision = e.revision + 1
  where e.id = $2 and e.revision = $3 and e.status <> 'removed'
  returning e.*
), metered as (
  insert into postrider.meters (lane, tokens, refilled_at)
  select c.lane, coalesce(c.rate_burst, 0), coalesce($1::timestamptz, clock_timestamp()) from changed c
  where c.max_in_flight is not null or c.rate_per_second is not null
  on conflict (lane) do nothing
), counted as (
  update postrider.leases
  set is_metered = true
  where ctid = any (array (
    select l.ctid from postrider.leases l
    where l.lane = (select c.lane from changed c where c.max_in_flight is not null) and not l.is_metered
    order by l.delivery_id
    for update))
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject)
  select postrider.new_id(), coalesce($1::timestamptz, clock_timestamp()), c.tenant, $10, $11, c.id::text from changed c
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from changed)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select c.id, c.tenant, c.url, c.event_types, c.status, c.status_reason, c.settings, c.revision, c.failing_since, c.created_at,
       (select count(*) from notified) as notified
from changed c
