with taken as (
  delete from payments.held_changes where request_id = $1 returning *
)
select event_id, previous_status, new_status, occurred_at from taken order by occurred_at, event_id
