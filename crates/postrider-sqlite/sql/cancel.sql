-- The reason takes the place of the last error; the attempts keep theirs.
update postrider_deliveries
set status = 'cancelled', next_attempt_at = null, error_detail = ?2
where id = ?1
