-- What is not settled is in one of three places, which are small beside the history; each row's delivery is one lookup.
-- The oldest is by when it was due, which is not the order within a lane: what was released is at the end of its lane
-- and has been due for longer.
with unsettled (place, status, next_attempt_at) as (
  select 'ready', d.status, d.next_attempt_at
  from postrider_ready r
  cross join postrider_deliveries d on d.id = r.delivery_id
  where ?1 is null or d.tenant = ?1
  union all
  select 'scheduled', d.status, d.next_attempt_at
  from postrider_scheduled s
  cross join postrider_deliveries d on d.id = s.delivery_id
  where ?1 is null or d.tenant = ?1
  union all
  select 'leases', d.status, d.next_attempt_at
  from postrider_leases l
  cross join postrider_deliveries d on d.id = l.delivery_id
  where ?1 is null or d.tenant = ?1
)
select count(*) filter (where status = 'pending') as pending,
       count(*) filter (where status = 'failed') as failed,
       count(*) filter (where place = 'ready') as due,
       count(*) filter (where place = 'scheduled') as scheduled,
       count(*) filter (where place = 'leases') as in_flight,
       min(next_attempt_at) filter (where place = 'ready') as oldest_due_at
from unsettled
