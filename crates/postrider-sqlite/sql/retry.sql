-- The same round goes on, only sooner.
update postrider_deliveries
set next_attempt_at = ?2
where id = ?1
