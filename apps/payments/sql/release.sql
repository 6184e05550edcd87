-- Gives leases back. A request that a replica has meanwhile taken over has another token, and is left alone.
update payments.requests r
set look_at = clock_timestamp() + $4 * interval '1 microsecond', lease_owner = null, lease_token = null, lease_until = null
from unnest($2::uuid[], $3::uuid[]) as held (id, token)
where r.id = held.id and r.lease_owner = $1 and r.lease_token = held.token
