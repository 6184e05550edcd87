-- How far one page of subjects looks: see deliveries_floor.sql.
select o.tenant, o.subject
from postrider.once o
where ($1::text is null or o.tenant = $1)
  and ($1::text is null or $2::text is null or o.subject >= $2)
  and ($3::text is null or ($1::text is not null and o.subject > $4) or ($1::text is null and (o.tenant, o.subject) > ($3, $4)))
order by o.tenant, o.subject
limit 1 offset $5::int
