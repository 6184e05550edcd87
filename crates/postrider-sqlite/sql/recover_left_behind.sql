-- Whoever has the dispatching lock asks this once, so what others hold was left behind.
select delivery_id, owner
from postrider_leases
where lease_until > ?1
