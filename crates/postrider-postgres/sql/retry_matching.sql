-- The oldest deliveries that match and that a retry would move: dead letters, scheduled ones that have failed, and
-- cancelled ones. Each kind is read from where it rests; what the asked status rules out costs nothing, since the
-- statement is planned for its values.
select d.id
from (
  select d.* from postrider.dead x join postrider.deliveries d on d.id = x.delivery_id
  where coalesce($2::text, 'dead') = 'dead'
  union all
  select d.* from postrider.scheduled s join postrider.deliveries d on d.id = s.delivery_id
  where coalesce($2::text, 'failed') = 'failed' and d.status = 'failed'
  union all
  select d.* from postrider.cancelled x join postrider.deliveries d on d.id = x.delivery_id
  where coalesce($2::text, 'cancelled') = 'cancelled'
) d
where ($1::text is null or d.tenant = $1)
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or exists (select from postrider.events e where e.id = d.event_id and e.type = $5))
  and ($6::timestamptz is null or d.created_at >= $6)
  and ($7::timestamptz is null or d.created_at < $7)
order by d.id
limit $8::int
