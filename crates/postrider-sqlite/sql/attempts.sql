-- A range of the primary key, in its order.
select number, started_at, duration_ms, outcome, status_code, response_excerpt, error_detail, worker_id
from postrider_attempts
where delivery_id = ?1
order by number
