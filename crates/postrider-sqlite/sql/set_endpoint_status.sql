-- Deliveries are not touched: a claim looks at the endpoint of each lane, so one row holds any number of them back.
-- Whoever resumes an endpoint gives it a fresh start: earlier failures do not count towards the next disabling.
update postrider_endpoints
set status = ?2, status_reason = ?3, failing_since = iif(?2 = 'active', null, failing_since)
where id = ?1 and status <> 'removed'
returning tenant
