-- How far down one page looks: see deliveries_floor.sql.
select p.id
from postrider_events p
where {conditions}
order by p.id desc
limit 1 offset :looked
