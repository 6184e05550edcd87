-- Owner and token: the owner alone would let an older task of the same worker settle the newer claim.
delete from postrider_leases
where delivery_id = ?1 and owner = ?2 and token = ?3
