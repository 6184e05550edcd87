-- One seek: the first entry of the primary key.
select min(due_at)
from postrider_scheduled
