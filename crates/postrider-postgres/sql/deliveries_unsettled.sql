-- Unsettled deliveries that match, newest first: as deliveries.sql, but found through the places, which hold exactly
-- these. Their ids are sorted first, and the deliveries looked up in that order only until the page is full; OFFSET 0
-- keeps the planner from joining everything before it sorts.
select d.*
from (
  select u.delivery_id
  from (
    select r.delivery_id from postrider.ready r
    union all select s.delivery_id from postrider.scheduled s
    union all select l.delivery_id from postrider.leases l
  ) u
  where ($8::uuid is null or u.delivery_id < $8)
    and ($11::uuid is null or u.delivery_id >= $11)
  order by u.delivery_id desc
  offset 0
) x
cross join lateral (
  select d.* from postrider.delivery_lines d
  where d.id = x.delivery_id and d.status = $2
  offset 0
) d
where ($1::text is null or d.tenant = $1)
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or d.event_type = $5)
  and ($6::timestamptz is null or (d.created_at >= $6
       and ($10::boolean or d.id >= postrider.first_id_at($6 - interval '1 minute'))))
  and ($7::timestamptz is null or (d.created_at < $7
       and ($10::boolean or d.id < postrider.first_id_at($7 + interval '1 minute'))))
order by x.delivery_id desc
limit $9::int
