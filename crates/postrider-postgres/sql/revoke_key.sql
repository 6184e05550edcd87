-- Revokes a key of a tenant, or any. It stays on the list: who had a key is part of the record.
with revoked as (
  update postrider.api_keys k
  set revoked_at = coalesce($1::timestamptz, clock_timestamp())
  where k.id = $2 and k.revoked_at is null and ($3::text is null or k.tenant = $3)
  returning k.id, k.tenant, k.name, k.revoked_at
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  select postrider.new_id(), r.revoked_at, r.tenant, $4, 'key.revoke', r.id::text, r.name from revoked r
)
select exists (select from revoked) as found
