-- Dead letters that match, newest first: as deliveries.sql, but found through `dead`, since no index covers the
-- status, which changes.
select d.*
from postrider.dead x
join postrider.delivery_lines d on d.id = x.delivery_id
where ($1::text is null or d.tenant = $1)
  and d.status = $2
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or d.event_type = $5)
  and ($6::timestamptz is null or (d.created_at >= $6
       and ($10::boolean or d.id >= postrider.first_id_at($6 - interval '1 minute'))))
  and ($7::timestamptz is null or (d.created_at < $7
       and ($10::boolean or d.id < postrider.first_id_at($7 + interval '1 minute'))))
  and ($8::uuid is null or x.delivery_id < $8)
  and ($11::uuid is null or x.delivery_id >= $11)
order by x.delivery_id desc
limit $9::int
