-- By its key alone: the row was read in this same transaction, and nobody else writes meanwhile.
delete from postrider_leases
where delivery_id = ?1
