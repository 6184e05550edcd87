-- The new position is one more than the last in the lane, which is one step into the primary key. Positions need not
-- be unique in time, only ordered among the rows that are there.
insert into postrider_ready (lane, position, delivery_id)
select d.lane, 1 + coalesce((select max(r.position) from postrider_ready r where r.lane = d.lane), 0), d.id
from postrider_deliveries d
where d.id = ?1
