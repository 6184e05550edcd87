-- Only for endpoints that have a rate limit.
select full_at
from postrider_buckets
where endpoint_id = ?1
