-- Exact, so it reads all that match. The conditions are those of the listing.
select count(*) as count
from postrider_deliveries d
cross join postrider_events e on e.id = d.event_id
where {conditions}
