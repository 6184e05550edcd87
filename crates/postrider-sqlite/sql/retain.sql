-- Walks the events by identifier, which sorts by time, so that each step begins where the last one ended. Whether an
-- event may go is asked of its deliveries by their index.
select e.id, e.created_at,
       exists (select 1 from postrider_deliveries d
               where d.event_id = e.id and d.status not in ('delivered', 'cancelled')) as is_unfinished
from postrider_events e
where e.id > ?1
order by e.id
limit ?2
