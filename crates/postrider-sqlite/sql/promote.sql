-- A range from the beginning of the primary key: its cost depends on what is due, not on what is scheduled.
select due_at, delivery_id
from postrider_scheduled
where due_at <= ?1
order by due_at, delivery_id
limit ?2
