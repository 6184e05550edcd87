-- Newest first is the primary key read backwards, as far down as deliveries_floor.sql says. The conditions are put together by the program, and name only what
-- narrows: a condition that is switched off by a parameter would keep SQLite from using an index for the others.
select d.id, d.tenant, d.event_id, e.event_type, d.endpoint_id, d.destination_url, d.status, d.attempt_count,
       d.earlier_attempts, d.abandoned_count, d.next_attempt_at, d.last_attempted_at, d.error_detail,
       l.owner as lease_owner, l.lease_until, d.created_at
from postrider_deliveries d
cross join postrider_events e on e.id = d.event_id
left join postrider_leases l on l.delivery_id = d.id
where {conditions}
order by d.id desc
limit :limit
