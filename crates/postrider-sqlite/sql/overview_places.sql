-- The places are small, and each row's delivery is one lookup. The oldest is by when it was due, which is not the
-- order within a lane: what was released is at the end of its lane and has been due for longer.
with due (count, oldest_due_at) as (
  select count(*), min(d.next_attempt_at)
  from postrider_ready r
  cross join postrider_deliveries d on d.id = r.delivery_id
  where ?1 is null or d.tenant = ?1
)
select due.count as due, due.oldest_due_at,
       (select count(*) from postrider_leases l
        cross join postrider_deliveries d on d.id = l.delivery_id
        where ?1 is null or d.tenant = ?1) as in_flight,
       (select count(*) from postrider_scheduled s
        cross join postrider_deliveries d on d.id = s.delivery_id
        where ?1 is null or d.tenant = ?1) as scheduled
from due
