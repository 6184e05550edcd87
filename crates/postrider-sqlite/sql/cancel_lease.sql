-- Whoever holds the lease finds it gone when it settles, and changes nothing.
delete from postrider_leases
where delivery_id = ?1
