-- Counted, not remembered: counters would be a row that every settle writes.
select status, count(*) as count
from postrider_deliveries
where ?1 is null or tenant = ?1
group by status
