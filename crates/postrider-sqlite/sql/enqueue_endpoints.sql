-- All endpoints of the tenant that may want an event. Patterns are matched by the engine, so that there is one notion
-- of what `invoice.*` means. Paused endpoints take part: what comes in meanwhile waits for them.
select id, url, event_types
from postrider_endpoints
where tenant = ?1 and status in ('active', 'paused')
order by id
