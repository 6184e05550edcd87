-- `due_at` is the delivery's next_attempt_at: that is how a scheduled row is found from its delivery.
insert into postrider_scheduled (due_at, delivery_id)
values (?1, ?2)
