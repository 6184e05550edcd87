-- What can be retried is in one of three small places: dead letters, what is scheduled, and what was cancelled. The
-- search begins there and looks each up by its key, so that the history of delivered ones is never read.
with candidates (id) as (
  select delivery_id from postrider_dead_letters
  union all
  select delivery_id from postrider_scheduled
  union all
  select id from postrider_deliveries where status = 'cancelled'
)
select d.id
from candidates c
cross join postrider_deliveries d on d.id = c.id
cross join postrider_events e on e.id = d.event_id
where d.status in ('dead', 'failed', 'cancelled') and {conditions}
order by d.id
limit :limit
