-- The last position that was ever given out, also when retention has removed its row.
select seq
from sqlite_sequence
where name = 'postrider_announcements'
