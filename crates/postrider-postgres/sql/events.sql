-- Events that match, newest first, as many as their payloads' bytes allow ($8), but at least one. The sizes are known
-- without reading the payloads, so that what does not fit is not read. `found` is one more than the page's limit when there
-- is a next page. Planned for its values, as deliveries.sql is, which also says how times bound ids
-- and what the floor ($9) is for.
with sized as materialized (
  select e.id, octet_length(e.payload) as bytes
  from postrider.events e
  where ($1::text is null or e.tenant = $1)
    and ($2::text is null or e.type = $2)
    and ($3::timestamptz is null or (e.created_at >= $3
         and ($7::boolean or e.id >= postrider.first_id_at($3 - interval '1 minute'))))
    and ($4::timestamptz is null or (e.created_at < $4
         and ($7::boolean or e.id < postrider.first_id_at($4 + interval '1 minute'))))
    and ($5::uuid is null or e.id < $5)
    and ($9::uuid is null or e.id >= $9)
  order by e.id desc
  limit $6::int
), page as materialized (
  select s.id, row_number() over newest as n, sum(s.bytes) over newest as bytes, count(*) over () as found
  from sized s
  window newest as (order by s.id desc)
)
select e.id, e.tenant, e.type, e.payload, e.metadata, e.topic, e.created_at, p.found
from page p
join postrider.events e on e.id = p.id
where p.n = 1 or p.bytes <= $8::bigint
order by p.n
