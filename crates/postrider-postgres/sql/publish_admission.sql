-- Leaves the rules by which a process admits events to the SQL functions. Nothing is written when they are the same: processes start
-- often, and their rules change seldom.
update postrider.admission a
set max_payload_bytes = $1, bare_destinations = $2, require_https = $3, allowed_hosts = $4, allowed_networks = n.networks,
    changed_at = clock_timestamp()
from (select $5::text[]::inet[] as networks) n
where (a.max_payload_bytes, a.bare_destinations, a.require_https, a.allowed_hosts, a.allowed_networks)
  is distinct from ($1::bigint, $2::boolean, $3::boolean, $4::text[], n.networks)
