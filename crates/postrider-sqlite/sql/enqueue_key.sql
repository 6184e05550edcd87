-- The primary key is the promise: whatever a program gets wrong, a key never belongs to two events.
insert into postrider_idempotency_keys (tenant, key, fingerprint, event_id)
values (?1, ?2, ?3, ?4)
