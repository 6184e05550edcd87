-- In the transaction of the action itself: what was done is in the trail, and what is in the trail was done.
insert into postrider_audit (id, at, tenant, operator, action, subject, reason)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
