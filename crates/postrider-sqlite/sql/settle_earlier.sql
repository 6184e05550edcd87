-- Asked when the lease is gone: the attempt that was made under this token is there if the settle had been applied.
-- A delivery has few attempts, so the token needs no index.
select 1
from postrider_attempts
where delivery_id = ?1 and token = ?2
