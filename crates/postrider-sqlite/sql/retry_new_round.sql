-- A new round of attempts from 0. The attempts that were made stay, and go on being counted in their numbers.
update postrider_deliveries
set status = 'pending',
    earlier_attempts = earlier_attempts + attempt_count,
    attempt_count = 0,
    abandoned_count = 0,
    next_attempt_at = ?2,
    error_detail = null
where id = ?1
