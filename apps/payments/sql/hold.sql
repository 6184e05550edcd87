insert into payments.held_changes (event_id, request_id, previous_status, new_status, occurred_at, reason)
values ($1, $2, $3, $4, $5, $6)
