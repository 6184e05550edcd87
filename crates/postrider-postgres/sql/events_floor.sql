-- How far down one page looks: see deliveries_floor.sql.
select e.id
from postrider.events e
where ($1::text is null or e.tenant = $1)
  and ($2::timestamptz is null or $5::boolean or e.id < postrider.first_id_at($2 + interval '1 minute'))
  and ($3::uuid is null or e.id < $3)
order by e.id desc
limit 1 offset $4::int
