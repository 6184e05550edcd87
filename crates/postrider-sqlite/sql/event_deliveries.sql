-- Oldest first: the index on the event ends in the delivery's identifier, which sorts by time.
select id, destination_url, status
from postrider_deliveries
where event_id = ?1
order by id
