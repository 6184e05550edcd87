-- All of them are settled, so they are in no place from which they would be missed.
delete from postrider_deliveries
where event_id = ?1
