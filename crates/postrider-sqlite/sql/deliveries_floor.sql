-- How far down one page looks, along the index that its listing uses. Where few rows match, reading on until a page is full
-- would be to read everything.
select p.id, p.tenant
from postrider_deliveries p
where {conditions}
order by p.id desc
limit 1 offset :looked
