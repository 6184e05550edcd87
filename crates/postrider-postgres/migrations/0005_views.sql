-- Views for psql and for tools that draw; who may use what is in the schema; and what it says of itself.

-- --- To look at -----------------------------------------------------------------------------------------------------

create view postrider.dead_letters as
  select x.delivery_id, d.event_id, d.tenant, e.type as event_type, d.endpoint_id, d.destination_url,
         d.attempt_count + d.earlier_attempts as attempt_count, x.reason, d.error_detail, d.last_attempted_at, x.died_at, d.created_at
  from postrider.dead x
  join postrider.deliveries d on d.id = x.delivery_id
  join postrider.events e on e.id = d.event_id;

-- As overview.sql counts for all tenants together: what was delivered is what is in no place.
create view postrider.overview as
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
    select statement_timestamp() - interval '1 minute' as since, max(a.position) as position from postrider.announcements a
  ), back (step, position, at) as (
    select 0, n.position, 'infinity'::timestamptz from newest n
    union all
    select b.step + 1, earlier.position, earlier.at
    from back b
    cross join newest n
    cross join lateral (
      select a.position, a.at from postrider.announcements a
      where a.position <= n.position - (512::bigint << b.step) order by a.position desc limit 1
    ) earlier
    where b.at > n.since - interval '1 minute' and b.step < 40
  ), told as (
    select count(*) filter (where a.fact = 'delivery.delivered') as delivered,
           count(*) filter (where a.fact = 'delivery.failed') as failed,
           count(*) filter (where a.fact = 'delivery.dead') as dead
    from newest n
    join postrider.announcements a
      on a.position > coalesce((select max(b.position) from back b where b.at <= n.since - interval '1 minute'), 0)
    where a.at > n.since
  )
  select c.pending, c.failed, s.total - c.pending - c.failed - s.dead - s.cancelled as delivered, s.dead, s.cancelled,
         c.due, c.in_flight, c.scheduled, statement_timestamp() - c.first_due as oldest_due_age,
         t.delivered as delivered_per_minute, t.failed as failed_per_minute, t.dead as dead_per_minute,
         statement_timestamp() as counted_at
  from counted c, settled s, told t;

-- --- Who may ---------------------------------------------------------------------------------------------------------

-- Lets a role enqueue; with `operate` also retry, cancel, and look at the views. No table is opened.
create procedure postrider.grant_to(role name, operate boolean default false)
  language plpgsql as $$
declare
  found_function regprocedure;
begin
  execute format('grant usage on schema postrider to %I', role);
  for found_function in
    select p.oid from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'postrider'
      and (p.proname in ('enqueue', 'enqueue_once', 'reset_once', 'once') or (operate and p.proname in ('retry', 'cancel')))
  loop
    execute format('grant execute on function %s to %I', found_function, role);
  end loop;
  if operate then
    execute format('grant select on postrider.overview, postrider.dead_letters to %I', role);
  end if;
end $$;

create procedure postrider.revoke_from(role name)
  language plpgsql as $$
begin
  execute format('revoke all on all functions in schema postrider from %I', role);
  execute format('revoke all on all tables in schema postrider from %I', role);
  execute format('revoke all on schema postrider from %I', role);
end $$;

revoke all on schema postrider from public;
revoke all on all tables in schema postrider from public;
revoke execute on all routines in schema postrider from public;

-- --- What it says to who asks (\df+, \dv+) ----------------------------------------------------------------------------

comment on schema postrider is 'Postrider: webhooks that are enqueued in your own transaction and delivered at least once.';
comment on function postrider.enqueue(text, text, text, text, text, timestamptz, jsonb, text) is
  'Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event''s id.';
comment on function postrider.enqueue(text, jsonb, text, text, text, timestamptz, jsonb, text) is
  'Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event''s id.';
comment on function postrider.enqueue(text, json, text, text, text, timestamptz, jsonb, text) is
  'Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event''s id.';
comment on function postrider.enqueue_once(text, text, text, text, text, text, timestamptz, jsonb, bigint, text) is
  'As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.';
comment on function postrider.enqueue_once(text, text, jsonb, text, text, text, timestamptz, jsonb, bigint, text) is
  'As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.';
comment on function postrider.enqueue_once(text, text, json, text, text, text, timestamptz, jsonb, bigint, text) is
  'As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.';
comment on function postrider.reset_once(text, text) is
  'Begins the next generation of a subject, in which it can be claimed again, and returns it. Audited.';
comment on function postrider.once(text, text) is
  'How a subject stands: its generation, and which event has claimed it, if one has. No row if nobody has named it yet.';
comment on function postrider.retry(uuid) is
  'Makes a dead, cancelled or failed delivery due now. False if there is none, or if it is delivered, due or in flight. Audited.';
comment on function postrider.cancel(uuid, text) is
  'Stops a delivery that waits or flies. False if there is none, or if it is settled. Audited.';
comment on procedure postrider.grant_to(name, boolean) is
  'Lets a role enqueue, claim and reset subjects; with operate also retry, cancel, and read the views. Only the owner of the schema can call it.';
comment on procedure postrider.revoke_from(name) is
  'Takes back what grant_to gave.';
comment on view postrider.overview is 'What is where, of all tenants together, counted exactly: one row.';
comment on view postrider.dead_letters is 'Deliveries that are given up. retry(delivery_id) begins a new round.';
comment on table postrider.admission is 'The rules by which the functions accept events. Written by processes that have rules of their own when they apply migrations.';
