-- Changes nothing the second time, so that of many 410s only the first is announced.
update postrider_endpoints
set status = 'disabled', status_reason = ?2
where id = ?1 and status <> 'disabled'
