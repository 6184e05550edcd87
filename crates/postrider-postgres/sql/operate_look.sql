-- Where a delivery is, for saying why an operator's action was not possible, or that it must be tried again because the
-- delivery was just moving from one place to the next.
select d.status,
       exists (select from postrider.leases l where l.delivery_id = d.id) as leased,
       exists (select from postrider.scheduled s where s.due_at = d.next_attempt_at and s.delivery_id = d.id) as scheduled
from postrider.deliveries d
where d.id = $1
