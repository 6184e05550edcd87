-- Subjects in the order of the primary key, which is that of the database: texts that begin alike need not be in one piece there,
-- so that what begins otherwise is passed over, as far as once_claims_floor.sql says ($5, $6). Nothing that begins with a text of
-- plain ASCII sorts before it. Within one tenant subjects alone are compared: the index is then entered where the page begins.
select o.tenant, o.subject, o.generation, o.event_id, o.event_type, o.claimed_at
from postrider.once o
where ($1::text is null or o.tenant = $1)
  and ($2::text is null or starts_with(o.subject, $2))
  and ($1::text is null or $2::text is null or o.subject >= $2)
  and ($3::text is null or ($1::text is not null and o.subject > $4) or ($1::text is null and (o.tenant, o.subject) > ($3, $4)))
  and ($5::text is null or ($1::text is not null and o.subject <= $6) or ($1::text is null and (o.tenant, o.subject) <= ($5, $6)))
order by o.tenant, o.subject
limit $7::int
