-- Counted in a row: the next settle that applies sets it back to 0.
update postrider_deliveries
set abandoned_count = abandoned_count + 1
where id = ?1
returning abandoned_count
