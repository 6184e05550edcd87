-- Writes a whole list of events, with their keys, deliveries and places, in one statement: it costs one round trip
-- however long the list is, and within the caller's transaction it is all or nothing by itself.
--
-- An event with an idempotency key is written only if its key's insert won; a concurrent insert of the same key is
-- waited for. Who won against the losers is read by another statement (enqueue_earlier.sql), since this one's snapshot is
-- older than a winner that it has waited for.
--
-- Keys are inserted in order, so that two lists with the same keys wait for each other and do not deadlock.
--
-- An event may bring its own id, and one that claims a subject has done so before (once_claim.sql), under the id that it
-- brings here.
--
-- The endpoints of a tenant are looked up per event (OFFSET 0 keeps it that way): planned while there are none, a join
-- would read all of them when there are many.
--
-- Ids are minted in the order of the list, so that deliveries of one list sort as they were given, and become ready
-- in that order.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), given as materialized (
  select g.*, coalesce(g.brought_id, postrider.new_id()) as event_id
  from unnest($2::text[], $3::text[], $4::bytea[], $5::jsonb[], $6::text[], $7::text[], $8::bytea[],
              $9::timestamptz[], $10::text[], $11::text[], $12::uuid[], $13::uuid[]) with ordinality
    as g (tenant, type, payload, metadata, topic, key, fingerprint, deliver_at, destination_url, lane, endpoint_id,
          brought_id, n)
), keyed as (
  insert into postrider.idempotency_keys (tenant, key, event_id, fingerprint, created_at)
  select g.tenant, g.key, g.event_id, g.fingerprint, c.at
  from given g, clock c
  where g.key is not null
  order by g.tenant collate "C", g.key collate "C"
  on conflict do nothing
  returning event_id
), fresh as materialized (
  select g.* from given g
  where g.key is null or g.event_id in (select k.event_id from keyed k)
), stored as (
  insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at)
  select f.event_id, f.tenant, f.type, f.payload, f.metadata, f.topic, c.at from fresh f, clock c order by f.n
), routed as materialized (
  select r.*, postrider.new_id() as id
  from (
    select f.n, f.event_id, f.tenant, f.deliver_at, null::uuid as endpoint_id, f.destination_url, f.lane
    from fresh f
    where f.destination_url is not null
    union all
    select f.n, f.event_id, f.tenant, f.deliver_at, e.id, e.url, e.lane
    from fresh f
    cross join lateral (
      select e.id, e.url, e.lane
      from postrider.endpoints e
      where e.tenant = f.tenant
        and e.status in ('active', 'paused')
        and exists (
          select from unnest(e.event_types) pattern
          where pattern = f.type
             or (right(pattern, 1) = '*' and starts_with(f.type, left(pattern, -1))
                 and length(f.type) >= length(pattern)))
      offset 0
    ) e
    where f.destination_url is null and f.endpoint_id is null
    union all
    select f.n, f.event_id, f.tenant, f.deliver_at, e.id, e.url, e.lane
    from fresh f
    cross join lateral (
      select e.id, e.url, e.lane
      from postrider.endpoints e
      where e.id = f.endpoint_id and e.tenant = f.tenant and e.status in ('active', 'paused')
      offset 0
    ) e
    where f.endpoint_id is not null
    order by 1, 5
  ) r
), delivering as (
  insert into postrider.deliveries
    (id, event_id, tenant, endpoint_id, destination_url, lane, next_attempt_at, created_at)
  select r.id, r.event_id, r.tenant, r.endpoint_id, r.destination_url, r.lane, coalesce(r.deliver_at, c.at), c.at
  from routed r, clock c
  order by r.id
), made_ready as (
  insert into postrider.ready (lane, delivery_id)
  select r.lane, r.id from routed r, clock c
  where r.deliver_at is null or r.deliver_at <= c.at
  order by r.id
  returning delivery_id
), made_scheduled as (
  insert into postrider.scheduled (due_at, delivery_id, lane)
  select r.deliver_at, r.id, r.lane from routed r, clock c
  where r.deliver_at > c.at
  order by r.id
), notified as (
  select pg_notify('postrider_ready', '')
  where exists (select from made_ready)
    and exists (select from postrider.listeners l where l.channel = 'ready' and l.until > statement_timestamp())
)
select g.n - 1 as index, g.event_id, (select c.at from clock c) as created_at, f.event_id is not null as is_new,
       r.id as delivery_id, r.endpoint_id, r.destination_url, (select count(*) from notified) as notified
from given g
left join fresh f on f.n = g.n
left join routed r on r.n = g.n
order by g.n, r.id
