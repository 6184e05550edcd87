-- Deliveries are not touched: a claim looks at the endpoint of each lane, so one row holds any number of them back.
update postrider_endpoints
set status = ?2, status_reason = ?3
where id = ?1
