-- How far down one page of cancelled deliveries looks.
select x.delivery_id as id
from postrider.cancelled x
where $1::uuid is null or x.delivery_id < $1
order by x.delivery_id desc
limit 1 offset $2::int
