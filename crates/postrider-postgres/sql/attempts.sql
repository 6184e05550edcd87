-- The history of one delivery, in the order of the primary key.
select a.number, a.started_at, a.duration_ms, a.outcome, a.status_code, a.response_excerpt, a.error_detail, a.worker_id
from postrider.attempts a
where a.delivery_id = $1
order by a.number
