-- Takes open requests whose turn it is and that nobody holds. SKIP LOCKED lets replicas claim side by side without
-- waiting, and the random token tells this claim from every other one, an earlier one of the same owner included.
with due as materialized (
  select id
  from payments.requests
  where status in ('pending', 'detected')
    and look_at <= statement_timestamp()
    and (lease_until is null or lease_until <= statement_timestamp())
  order by look_at
  limit $3
  for update skip locked
)
update payments.requests r
set lease_owner = $1, lease_token = gen_random_uuid(), lease_until = clock_timestamp() + $2 * interval '1 microsecond'
from due
where r.id = due.id
returning r.id, r.lease_token, r.address, r.amount_wei::text, r.status, r.expires_at <= statement_timestamp() as is_past
