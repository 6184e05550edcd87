-- No attempt is counted, since none is known to have been made.
update postrider_deliveries
set status = 'dead', next_attempt_at = null, error_detail = ?2
where id = ?1
