-- A step of the search for the first announcement of the last minute: the next position at or after this one.
select position, at
from postrider_announcements
where position >= ?1
order by position
limit 1
