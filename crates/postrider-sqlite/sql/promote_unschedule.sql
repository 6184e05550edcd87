-- By the whole primary key; `due_at` is the delivery's next_attempt_at.
delete from postrider_scheduled
where due_at = ?1 and delivery_id = ?2
