-- What is where, counted exactly and in one snapshot. The counts by status read all deliveries (of the tenant); the rest
-- reads the places, which are small.
select s.*, r.due, r.oldest_due_age, f.in_flight, w.scheduled
from (
  select count(*) filter (where d.status = 'pending') as pending,
         count(*) filter (where d.status = 'failed') as failed,
         count(*) filter (where d.status = 'delivered') as delivered,
         count(*) filter (where d.status = 'dead') as dead,
         count(*) filter (where d.status = 'cancelled') as cancelled
  from postrider.deliveries d
  where $2::text is null or d.tenant = $2
) s, (
  select count(*) as due,
         (extract(epoch from coalesce($1::timestamptz, statement_timestamp()) - min(d.next_attempt_at)) * 1000000)::bigint
           as oldest_due_age
  from postrider.ready r join postrider.deliveries d on d.id = r.delivery_id
  where $2::text is null or d.tenant = $2
) r, (
  select count(*) as in_flight
  from postrider.leases l join postrider.deliveries d on d.id = l.delivery_id
  where $2::text is null or d.tenant = $2
) f, (
  select count(*) as scheduled
  from postrider.scheduled x join postrider.deliveries d on d.id = x.delivery_id
  where $2::text is null or d.tenant = $2
) w
