-- Cancelled deliveries, newest first: as deliveries.sql, but by an index of theirs, whatever else narrows. Without being told,
-- SQLite would rather walk along all deliveries of a tenant.
select d.id, d.tenant, d.event_id, e.event_type, d.endpoint_id, d.destination_url, d.status, d.attempt_count,
       d.earlier_attempts, d.abandoned_count, d.next_attempt_at, d.last_attempted_at, d.error_detail,
       l.owner as lease_owner, l.lease_until, d.created_at
from postrider_deliveries d indexed by postrider_deliveries_cancelled
cross join postrider_events e on e.id = d.event_id
left join postrider_leases l on l.delivery_id = d.id
where d.status = 'cancelled' and {conditions}
order by d.id desc
limit :limit
