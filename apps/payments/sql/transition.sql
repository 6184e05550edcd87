-- Compare and set: only from the status that was observed, and only by who holds the lease. A lease that has lapsed is none,
-- also if nobody took the request over yet: what was observed under it is too old. It also consumes the lease, so that
-- whoever comes later with the same claim finds nothing to change.
update payments.requests
set status = $5, updated_at = clock_timestamp(), look_at = clock_timestamp() + $6 * interval '1 microsecond',
    lease_owner = null, lease_token = null, lease_until = null
where id = $1 and lease_owner = $2 and lease_token = $3 and lease_until > clock_timestamp() and status = $4
returning webhook_url, updated_at
