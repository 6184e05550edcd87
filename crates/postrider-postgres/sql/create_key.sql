-- Makes a key; with $7 only if there is none at all. Two that want to be the first meet at the unique index of the first one.
with made as (
  insert into postrider.api_keys (id, name, tenant, scope, digest, was_first, created_at)
  select postrider.new_id(), $2, $3::text, $4, $5, $7::boolean, coalesce($1::timestamptz, clock_timestamp())
  where not $7::boolean or not exists (select from postrider.api_keys)
  on conflict (was_first) where was_first do nothing
  returning id, name, tenant, scope, created_at, revoked_at
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  select postrider.new_id(), m.created_at, m.tenant, $6, 'key.create', m.id::text, m.name from made m
)
select m.* from made m
