-- Retention counts from here.
update postrider_once
set ended_at = ?4
where tenant = ?1 and subject = ?2 and generation = ?3
