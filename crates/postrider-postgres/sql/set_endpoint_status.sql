-- The change and its audit entry together. Deliveries stay where they are: claims look at the status. An endpoint that is
-- active again may have deliveries waiting, so dispatchers are woken.
with changed as (
  update postrider.endpoints e
  set status = $3, status_reason = case when $3 <> 'active' then $4::text end
  where e.id = $2
  returning e.id
), audited as (
  insert into postrider.audit (id, at, operator, action, subject, reason)
  select postrider.new_id(), coalesce($1::timestamptz, clock_timestamp()), $5, $6, c.id, $4::text from changed c
), notified as (
  select pg_notify('postrider_ready', '')
  where $3 = 'active' and exists (select from changed)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select exists (select from changed) as found, (select count(*) from notified) as notified
