-- How far down one page looks, along the index that its listing uses: that of the endpoint, or of the tenant, or the primary key.
-- Where few rows match, reading on until a page is full would be to read everything.
select d.id, d.tenant
from postrider.deliveries d
where ($1::text is null or $2::uuid is not null or d.tenant = $1)
  and ($2::uuid is null or d.endpoint_id = $2)
  and ($3::timestamptz is null or $6::boolean or d.id < postrider.first_id_at($3 + interval '1 minute'))
  and ($4::uuid is null or d.id < $4)
order by d.id desc
limit 1 offset $5::int
