-- The row is there when the generation was begun by a reset. A generation that has a winner keeps it: no row changes
-- then, and the caller has looked before.
insert into postrider_once (tenant, subject, generation, event_id, event_type, claimed_at)
values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do update
set event_id = excluded.event_id, event_type = excluded.event_type, claimed_at = excluded.claimed_at
where postrider_once.event_id is null
