-- Read once per endpoint and batch: whether something is to be written is decided in memory.
select status, failing_since
from postrider_endpoints
where id = ?1
