-- The primary key is the promise that a delivery has one lease.
insert into postrider_leases (delivery_id, owner, token, lease_until)
values (?1, ?2, ?3, ?4)
