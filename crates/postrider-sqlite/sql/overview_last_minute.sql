-- As many rows as there were announcements in the last minute. The time is compared as well, because a clock that was
-- set back puts a younger position before an older time.
select count(*) filter (where fact = 'delivery.delivered') as delivered,
       count(*) filter (where fact = 'delivery.failed') as failed,
       count(*) filter (where fact = 'delivery.dead') as dead
from postrider_announcements
where position >= ?1 and at > ?2 and (?3 is null or tenant = ?3)
