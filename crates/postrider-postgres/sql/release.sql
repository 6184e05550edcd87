-- Gives leases back as if they had never been granted: nothing about the delivery itself changes. They are looked up as
-- renew.sql does, and for its reason.
with given as materialized (
  select g.delivery_id, g.token from unnest($2::uuid[], $3::uuid[]) as g (delivery_id, token)
), released as (
  delete from postrider.leases l
  where l.delivery_id = any ($2::uuid[]) and l.owner = $1
    and ((l.delivery_id, l.token) in (select g.delivery_id, g.token from given g)) is true
  returning l.delivery_id, l.lane
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select r.lane, r.delivery_id from released r order by r.delivery_id
  returning delivery_id
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from made_ready)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select count(*) as released, (select count(*) from notified) as notified from made_ready
