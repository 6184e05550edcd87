-- What is announced at once is one row. A settle announces some hundreds of deliveries, and a row for each, with its place in
-- an index, was a tenth of what the database did for a delivery.
--
-- A row takes a thousand positions, from a multiple of thousand on, and uses as many as it has deliveries: the n-th of them
-- has the row's position + n - 1. Rows from before have one each, and keep their positions.

alter table postrider.announcements rename to announced;
alter table postrider.announced rename constraint announcements_pkey to announced_pkey;
alter sequence postrider.announcements_position_seq rename to announced_position_seq;

alter table postrider.announced
  add column count integer not null default 1,
  alter column delivery_id type uuid[] using array[delivery_id],
  alter column event_id type uuid[] using array[event_id],
  alter column endpoint_id type uuid[] using array[endpoint_id],
  alter column endpoint_id set not null,
  alter column attempt_count type integer[] using array[attempt_count];
alter table postrider.announced alter column count drop default;
alter table postrider.announced rename column delivery_id to delivery_ids;
alter table postrider.announced rename column event_id to event_ids;
alter table postrider.announced rename column endpoint_id to endpoint_ids;
alter table postrider.announced rename column attempt_count to attempt_counts;

-- Ids do not get shorter by compressing them.
alter table postrider.announced
  alter column delivery_ids set storage external,
  alter column event_ids set storage external,
  alter column endpoint_ids set storage external,
  alter column attempt_counts set storage external,
  add constraint lists_are_of_one_length check
    (count between 1 and 1000 and cardinality(delivery_ids) = count and cardinality(event_ids) = count
     and cardinality(endpoint_ids) = count and cardinality(attempt_counts) = count);

do $$
begin
  execute format('alter table postrider.announced alter column position set increment by 1000 restart with %s',
                 (select (coalesce(max(a.position), 0) / 1000 + 1) * 1000 from postrider.announced a));
end $$;

create view postrider.announcements as
  select a.position + x.n - 1 as position, a.fact, x.delivery_id, x.event_id, x.endpoint_id, x.attempt_count, a.at
  from postrider.announced a
  cross join lateral unnest(a.delivery_ids, a.event_ids, a.endpoint_ids, a.attempt_counts)
    with ordinality as x (delivery_id, event_id, endpoint_id, attempt_count, n);

comment on table postrider.announced is 'What became of deliveries, in order, for subscribers; what is told at once is one row.';
comment on view postrider.announcements is 'What became of deliveries, one row each. Internal.';

-- --- Who announces, and who counts it --------------------------------------------------------------------------------

create or replace function postrider.cancel(delivery uuid, reason text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  instant  timestamptz;
  moves    bigint;
  told     text := case when reason ~ '[^[:space:]]' then reason else 'cancelled by an operator' end;
  standing text;
begin
  if octet_length(told) > 1000 or told ~ '[[:cntrl:]]' then
    perform postrider.refuse('PR009', 'reason_invalid', 'reason', 'a reason is one line of at most 1000 bytes', 'shorten it');
  end if;
  for tries in 1..20 loop
    instant := clock_timestamp();
    with wanted as materialized (
      select d.id, d.lane, d.next_attempt_at from postrider.deliveries d
      where d.id = delivery and d.status in ('pending', 'failed')
    ), unleased as (
      delete from postrider.leases l using wanted w where l.delivery_id = w.id returning l.delivery_id as id
    ), unscheduled as (
      delete from postrider.scheduled s using wanted w
      where s.due_at = w.next_attempt_at and s.delivery_id = w.id
      returning s.delivery_id as id
    ), unreadied as (
      delete from postrider.ready r using wanted w
      where r.lane = w.lane and r.delivery_id = w.id
      returning r.delivery_id as id
    ), moved as (
      update postrider.deliveries d
      set status = 'cancelled', next_attempt_at = null, error_detail = told
      from (select id from unleased union all select id from unscheduled union all select id from unreadied) x
      where d.id = x.id
      returning d.id, d.tenant, d.event_id, d.endpoint_id, d.attempt_count
    ), kept as (
      insert into postrider.cancelled (delivery_id) select m.id from moved m on conflict do nothing
    ), announced as (
      insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
      select 'delivery.cancelled', 1, instant, array[m.id], array[m.event_id], array[m.endpoint_id], array[m.attempt_count]
      from moved m
    ), audited as (
      insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
      select postrider.new_id(), instant, m.tenant, postrider.operator(), 'delivery.cancel', m.id::text, told from moved m
    )
    select count(*) into moves from moved;
    if moves > 0 then
      perform postrider.wake('announced');
      return true;
    end if;
    select d.status into standing from postrider.deliveries d where d.id = delivery;
    if not found or standing in ('delivered', 'dead', 'cancelled') then
      return false;
    end if;
  end loop;
  raise exception using errcode = 'serialization_failure',
    message = 'the delivery kept moving while it was acted on', hint = 'repeat the transaction';
end $$;

create or replace view postrider.overview as
  with recursive unsettled as materialized (
    select x.place, d.status, count(*) as count, min(d.next_attempt_at) as first_due
    from (
      select 'ready' as place, r.delivery_id from postrider.ready r
      union all select 'leased', l.delivery_id from postrider.leases l
      union all select 'scheduled', s.delivery_id from postrider.scheduled s
    ) x
    join postrider.deliveries d on d.id = x.delivery_id
    group by x.place, d.status
  ), counted as materialized (
    select coalesce(sum(u.count) filter (where u.status = 'pending'), 0)::bigint as pending,
           coalesce(sum(u.count) filter (where u.status = 'failed'), 0)::bigint as failed,
           coalesce(sum(u.count) filter (where u.place = 'ready'), 0)::bigint as due,
           coalesce(sum(u.count) filter (where u.place = 'leased'), 0)::bigint as in_flight,
           coalesce(sum(u.count) filter (where u.place = 'scheduled'), 0)::bigint as scheduled,
           min(u.first_due) filter (where u.place = 'ready') as first_due
    from unsettled u
  ), settled as materialized (
    select (select count(*) from postrider.dead) as dead, (select count(*) from postrider.cancelled) as cancelled,
           (select count(*) from postrider.deliveries) as total
  ), newest as materialized (
    select statement_timestamp() - interval '1 minute' as since, max(a.position) as position from postrider.announced a
  ), back (step, position, at) as (
    select 0, n.position, 'infinity'::timestamptz from newest n
    union all
    select b.step + 1, earlier.position, earlier.at
    from back b
    cross join newest n
    cross join lateral (
      select a.position, a.at from postrider.announced a
      where a.position <= n.position - (64000::bigint << b.step) order by a.position desc limit 1
    ) earlier
    where b.at > n.since - interval '1 minute' and b.step < 40
  ), told as (
    select coalesce(sum(a.count) filter (where a.fact = 'delivery.delivered'), 0)::bigint as delivered,
           coalesce(sum(a.count) filter (where a.fact = 'delivery.failed'), 0)::bigint as failed,
           coalesce(sum(a.count) filter (where a.fact = 'delivery.dead'), 0)::bigint as dead
    from newest n
    join postrider.announced a
      on a.position > coalesce((select max(b.position) from back b where b.at <= n.since - interval '1 minute'), 0)
    where a.at > n.since
  )
  select c.pending, c.failed, s.total - c.pending - c.failed - s.dead - s.cancelled as delivered, s.dead, s.cancelled,
         c.due, c.in_flight, c.scheduled, statement_timestamp() - c.first_due as oldest_due_age,
         t.delivered as delivered_per_minute, t.failed as failed_per_minute, t.dead as dead_per_minute,
         statement_timestamp() as counted_at
  from counted c, settled s, told t;
