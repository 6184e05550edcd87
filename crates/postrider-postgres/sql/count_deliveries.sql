-- How many match, exactly. No index covers the status, since it changes: what is dead is counted through
-- `dead`, what is unsettled through the places, and only the rest along the deliveries. The statement is planned
-- for its values, so that the branches that do not apply are not even part of the plan.
select count(*) as matching
from (
  select d.* from postrider.deliveries d
  where $2::text is null or $2::text in ('delivered', 'cancelled')
  union all
  select d.* from postrider.dead x join postrider.deliveries d on d.id = x.delivery_id
  where $2::text = 'dead'
  union all
  select d.*
  from (
    select r.delivery_id from postrider.ready r
    union all select s.delivery_id from postrider.scheduled s
    union all select l.delivery_id from postrider.leases l
  ) x
  join postrider.deliveries d on d.id = x.delivery_id
  where $2::text in ('pending', 'failed')
) d
where ($1::text is null or d.tenant = $1)
  and ($2::text is null or d.status = $2)
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or exists (select from postrider.events e where e.id = d.event_id and e.type = $5))
  and ($6::timestamptz is null or (d.created_at >= $6
       and ($8::boolean or d.id >= postrider.first_id_at($6 - interval '1 minute'))))
  and ($7::timestamptz is null or (d.created_at < $7
       and ($8::boolean or d.id < postrider.first_id_at($7 + interval '1 minute'))))
