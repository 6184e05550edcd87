-- Whether anything is left in a lane.
select 1
from postrider_ready
where lane = ?1
limit 1
