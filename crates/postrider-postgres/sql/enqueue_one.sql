-- Writes one event without an idempotency key, with its deliveries and places: what enqueue.sql does for a list, at half its
-- cost, which is mostly that of beginning so large a statement. The two say the same of an event, and are tested
-- with the same cases.
with given as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at, coalesce($11::uuid, postrider.new_id()) as event_id
), stored as (
  insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at)
  select g.event_id, $2::text, $3::text, $4::bytea, $5::jsonb, $6::text, g.at from given g
), routed as materialized (
  select r.*, postrider.new_id() as id
  from (
    select null::uuid as endpoint_id, $8::text as url, $9::text as lane where $8::text is not null
    union all
    select e.id, e.url, e.lane
    from postrider.endpoints e
    where $8::text is null and $10::uuid is null
      and e.tenant = $2::text
      and e.status in ('active', 'paused')
      and exists (
        select from unnest(e.event_types) pattern
        where pattern = $3::text
           or (right(pattern, 1) = '*' and starts_with($3::text, left(pattern, -1))
               and length($3::text) >= length(pattern)))
    union all
    select e.id, e.url, e.lane
    from postrider.endpoints e
    where e.id = $10::uuid and e.tenant = $2::text and e.status in ('active', 'paused')
    order by 1
  ) r
), delivering as (
  insert into postrider.deliveries
    (id, event_id, tenant, endpoint_id, destination_url, lane, next_attempt_at, created_at)
  select r.id, g.event_id, $2::text, r.endpoint_id, r.url, r.lane, coalesce($7::timestamptz, g.at), g.at
  from routed r, given g
  order by r.id
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select r.lane, r.id from routed r, given g
  where $7::timestamptz is null or $7::timestamptz <= g.at
  order by r.id
  returning delivery_id
), made_scheduled as (
  insert into postrider.scheduled (due_at, delivery_id, lane)
  select $7::timestamptz, r.id, r.lane from routed r, given g
  where $7::timestamptz > g.at
  order by r.id
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from made_ready)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select 0::bigint as index, g.event_id, g.at as created_at, true as is_new,
       r.id as delivery_id, r.endpoint_id, r.url as destination_url, (select count(*) from notified) as notified
from given g
left join routed r on true
order by r.id
