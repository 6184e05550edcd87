-- Somebody else's key is not there.
update postrider_api_keys
set revoked_at = ?2
where id = ?1 and revoked_at is null and (?3 is null or tenant = ?3)
returning tenant
