-- One update by primary key, after the lease was consumed. No index covers what changes here, but for the few
-- cancelled ones, so this writes one page.
update postrider_deliveries
set status = ?2,
    attempt_count = ?6,
    abandoned_count = 0,
    next_attempt_at = ?3,
    last_attempted_at = ?4,
    error_detail = ?5
where id = ?1
