-- Deliveries that are there wait, and new events pass it by.
update postrider_endpoints
set status = 'disabled', status_reason = ?2
where id = ?1 and status in ('active', 'paused')
