-- The deliveries of a page of events, oldest first.
select d.event_id, d.id, d.destination_url, d.status
from postrider.deliveries d
where d.event_id = any ($1::uuid[])
order by d.id
