-- By the delivery, whatever its position: the reason for which `postrider_ready` has a second key.
delete from postrider_ready
where delivery_id = ?1
