-- Unsettled deliveries, newest first: as deliveries.sql, but found through their places, which hold exactly these. All of them are
-- sorted, so this is for places that are not too full.
select d.id, d.tenant, d.event_id, e.event_type, d.endpoint_id, d.destination_url, d.status, d.attempt_count,
       d.earlier_attempts, d.abandoned_count, d.next_attempt_at, d.last_attempted_at, d.error_detail,
       l.owner as lease_owner, l.lease_until, d.created_at
from (
  select delivery_id from postrider_ready
  union all select delivery_id from postrider_scheduled
  union all select delivery_id from postrider_leases
) p
cross join postrider_deliveries d on d.id = p.delivery_id
cross join postrider_events e on e.id = d.event_id
left join postrider_leases l on l.delivery_id = d.id
where {conditions}
order by d.id desc
limit :limit
