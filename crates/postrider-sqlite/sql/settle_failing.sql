-- Written when a row of failures begins and when it ends, not with every attempt.
update postrider_endpoints
set failing_since = ?2
where id = ?1
