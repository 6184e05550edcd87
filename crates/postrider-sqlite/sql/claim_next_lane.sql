-- One step of the skip-scan: a single seek in the primary key, however many rows the lane before has.
select lane
from postrider_ready
where lane > ?1
order by lane
limit 1
