-- Everything that decides whether an operator's action is allowed. Nothing changes between this and the action, since
-- both are in one transaction of the only writer.
select d.tenant, d.status, d.next_attempt_at,
       exists (select 1 from postrider_leases l where l.delivery_id = d.id) as is_leased
from postrider_deliveries d
where d.id = ?1
