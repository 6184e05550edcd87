-- Its idempotency key stays: a key is taken for ever.
delete from postrider_events
where id = ?1
