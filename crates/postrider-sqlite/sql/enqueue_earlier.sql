-- Looked up before anything is written, not after a failed insert: there is one writer at a time, so what is not there
-- now cannot appear before our own insert.
select event_id, fingerprint
from postrider_idempotency_keys
where tenant = ?1 and key = ?2
