-- By an index of the removed ones alone, of which there are few.
select id, sweep_from
from postrider_endpoints
where status = 'removed'
order by id
