-- Before the deliveries, through which they are found.
delete from postrider_attempts
where delivery_id in (select id from postrider_deliveries where event_id = ?1)
