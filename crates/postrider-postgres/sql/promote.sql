-- Moves what is due from `scheduled` to `ready`, in the order in which it became due. Concurrent promotions take
-- different rows. `next_due_in` is how long the caller may sleep: nothing, when the limit was reached and more is due.
with due as materialized (
  select s.ctid as tid from postrider.scheduled s
  where s.due_at <= coalesce($1::timestamptz, statement_timestamp())
  order by s.due_at
  limit $2::int
  for update skip locked
), taken as (
  delete from postrider.scheduled s
  where s.ctid = any (array (select d.tid from due d))
  returning s.due_at, s.delivery_id, s.lane
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select t.lane, t.delivery_id from taken t order by t.due_at, t.delivery_id
  returning delivery_id
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from made_ready)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
), more as (
  select from postrider.scheduled s
  where s.due_at <= coalesce($1::timestamptz, statement_timestamp())
  order by s.due_at
  offset $2::int limit 1
), next as (
  select s.due_at from postrider.scheduled s
  where s.due_at > coalesce($1::timestamptz, statement_timestamp())
  order by s.due_at
  limit 1
)
select m.ready,
       case when m.ready = $2::int and exists (select from more) then 0
            else (select ceil(extract(epoch from n.due_at - coalesce($1::timestamptz, statement_timestamp())) * 1000000)::bigint
                  from next n) end as next_due_in,
       (select count(*) from notified) as notified
from (select count(*) as ready from made_ready) m
