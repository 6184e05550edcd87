-- Marks an endpoint as removed and forgets its settings, its secrets above all. The row stays while its deliveries are kept,
-- so that claims and enqueues know that it is no more.
with gone as (
  update postrider.endpoints e
  set status = 'removed', status_reason = null, removed_at = coalesce($1::timestamptz, clock_timestamp()), settings = '{}',
      max_in_flight = null, rate_per_second = null, rate_burst = null, failing_since = null
  where e.id = $2 and e.status <> 'removed'
  returning e.id, e.tenant, e.lane, e.removed_at
), unmetered as (
  delete from postrider.meters m using gone g where m.lane = g.lane
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject)
  select postrider.new_id(), g.removed_at, g.tenant, $3, 'endpoint.remove', g.id::text from gone g
)
select exists (select from gone) as found
