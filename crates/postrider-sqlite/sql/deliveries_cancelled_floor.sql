-- How far down one page of cancelled deliveries looks.
select p.id
from postrider_deliveries p indexed by postrider_deliveries_cancelled
where p.status = 'cancelled' and {conditions}
order by p.id desc
limit 1 offset :looked
