-- Deliveries that match, newest first, found by walking along them. The statement is planned for its values, so that
-- filters that do not apply cost nothing, and the walk uses the index of the narrowest one. Ids sort by time, so that
-- times bound ids, with some slack for the time a statement takes; not where the clock is frozen ($10), since ids are of
-- the real one. What is dead, cancelled or unsettled is rarer than the rest, and has statements of its own. Nothing below the
-- floor ($11) is looked at, which deliveries_floor.sql finds.
select d.*
from postrider.delivery_lines d
where ($1::text is null or d.tenant = $1)
  and ($2::text is null or d.status = $2)
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or d.event_type = $5)
  and ($6::timestamptz is null or (d.created_at >= $6
       and ($10::boolean or d.id >= postrider.first_id_at($6 - interval '1 minute'))))
  and ($7::timestamptz is null or (d.created_at < $7
       and ($10::boolean or d.id < postrider.first_id_at($7 + interval '1 minute'))))
  and ($8::uuid is null or d.id < $8)
  and ($11::uuid is null or d.id >= $11)
order by d.id desc
limit $9::int
