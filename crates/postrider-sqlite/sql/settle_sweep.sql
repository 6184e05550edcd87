-- The endpoint was removed while this delivery was in flight, and the sweep may have passed it: it goes back to it.
update postrider_endpoints
set sweep_from = max(coalesce(sweep_from, ?2), ?2)
where id = ?1 and status = 'removed'
