-- The front of the lane, which is then left by one range.
select position, delivery_id
from postrider_ready
where lane = ?1
order by position
limit ?2
