-- The one place where a lease is made to end earlier: its owner's process is known to be gone.
update postrider_leases
set lease_until = ?2
where delivery_id = ?1
