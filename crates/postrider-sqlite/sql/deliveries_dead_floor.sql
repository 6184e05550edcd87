-- How far down one page of dead letters looks.
select p.delivery_id as id
from postrider_dead_letters p
where {conditions}
order by p.delivery_id desc
limit 1 offset :looked
