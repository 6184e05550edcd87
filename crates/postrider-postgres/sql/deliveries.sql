-- Deliveries that match, newest first. No index covers the status, since it changes: what is dead is found through
-- `dead_letters`, what is unsettled through the places, and only the rest by walking along the deliveries. The
-- statement is planned for its values, so that the branches and filters that do not apply cost nothing, and the walk
-- uses the index of the narrowest filter. Ids sort by time, so that times bound ids, with some slack for the time a
-- statement takes; not where the clock is frozen ($10), since ids are of the real one.
select d.id, d.tenant, d.event_id, e.type as event_type, d.endpoint_id, d.destination_url, d.status, d.attempt_count,
       d.earlier_attempts, d.abandoned_count, d.next_attempt_at, d.last_attempted_at, d.error_detail,
       l.owner as lease_owner, l.lease_until, d.created_at
from (
  select d.* from postrider.deliveries d
  where $2::text is null or $2::text in ('delivered', 'cancelled')
  union all
  select d.* from postrider.dead_letters x join postrider.deliveries d on d.id = x.delivery_id
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
join postrider.events e on e.id = d.event_id
left join postrider.leases l on l.delivery_id = d.id
where ($1::text is null or d.tenant = $1)
  and ($2::text is null or d.status = $2)
  and ($3::uuid is null or d.endpoint_id = $3)
  and ($4::uuid is null or d.event_id = $4)
  and ($5::text is null or e.type = $5)
  and ($6::timestamptz is null or (d.created_at >= $6
       and ($10::boolean or d.id >= postrider.first_id_at($6 - interval '1 minute'))))
  and ($7::timestamptz is null or (d.created_at < $7
       and ($10::boolean or d.id < postrider.first_id_at($7 + interval '1 minute'))))
  and ($8::uuid is null or d.id < $8)
order by d.id desc
limit $9::int
