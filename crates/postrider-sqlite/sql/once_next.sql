-- The next subject: a seek in the primary key, however many generations the one before has.
select tenant, subject
from postrider_once
where (tenant, subject) > (?1, ?2)
order by tenant, subject
limit 1
