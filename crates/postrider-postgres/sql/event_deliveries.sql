-- The deliveries of one event, oldest first.
select d.id, d.destination_url, d.status from postrider.deliveries d where d.event_id = $1 order by d.id
