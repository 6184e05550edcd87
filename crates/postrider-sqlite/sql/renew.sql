-- Only forwards: a renewal that was held up must not shorten what a later one has granted.
update postrider_leases
set lease_until = max(lease_until, ?4)
where delivery_id = ?1 and owner = ?2 and token = ?3
