-- Looks at the oldest few only. Positions are the order of time, so behind the first that stays there is nothing old.
delete from postrider_announcements
where position in (select position from postrider_announcements order by position limit ?2) and at < ?1
