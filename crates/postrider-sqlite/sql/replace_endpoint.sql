-- Compare and set: whoever read an older revision changes nothing. The status is not part of what is written, so an
-- endpoint that was paused meanwhile stays paused.
update postrider_endpoints
set url = ?4, event_types = ?5, settings = ?6, revision = revision + 1
where id = ?1 and tenant = ?2 and revision = ?3 and status <> 'removed'
