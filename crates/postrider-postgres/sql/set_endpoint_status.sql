-- The change and its audit entry together. Deliveries stay where they are: claims look at the status. An endpoint that is
-- active again may have deliveries waiting, so dispatchers are woken. It also
-- starts with a clean record: what failed before is no reason to disable it again.
with changed as (
  update postrider.endpoints e
  set status = $3, status_reason = case when $3 <> 'active' then $4::text end,
      failing_since = case when $3 <> 'active' then e.failing_since end
  where e.id = $2 and e.status <> 'removed'
  returning e.id, e.tenant
), audited as (
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  select postrider.new_id(), coalesce($1::timestamptz, clock_timestamp()), c.tenant, $5, $6, c.id::text, $4::text from changed c
), notified as (
  select pg_notify('postrider_ready', '')
  where $3 = 'active' and exists (select from changed)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select exists (select from changed) as found, (select count(*) from notified) as notified
