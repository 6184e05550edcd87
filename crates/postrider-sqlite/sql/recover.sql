-- Reads all leases, of which there are as many as deliveries in flight: an index on lease_until would be written by
-- every heartbeat. Those that expired first come first.
select delivery_id
from postrider_leases
where lease_until <= ?1
order by lease_until, delivery_id
limit ?2
