-- The number counts over all rounds, and is part of the primary key: no attempt is written twice.
insert into postrider_attempts
  (delivery_id, number, token, started_at, duration_ms, outcome, status_code, response_excerpt, error_detail, worker_id)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
