-- Looks along the lane: that is an operator's single action, not worth an index that every delivery would pay for.
delete from postrider_ready
where lane = (select d.lane from postrider_deliveries d where d.id = ?1) and delivery_id = ?1
