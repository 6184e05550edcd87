-- Postrider from any language: functions to be called in the caller's own transaction.
--
-- What is public here is `security definer`, with a search path that holds nothing a caller could put something into, and may be
-- called by whoever was given the right to (`grant_to`), who needs no right on any table. The internal functions know their arguments as `given_…`, because the public names are those of
-- columns as well.
--
-- What is written is what enqueue.sql, once_claim.sql, once_reset.sql, retry.sql and cancel.sql write; tests compare them.

-- --- Dead letters ---------------------------------------------------------------------------------------------------

-- The place is named as `ready`, `scheduled` and `cancelled` are; the name that people know is a view's.
alter table postrider.dead_letters rename to dead;
alter table postrider.dead rename constraint dead_letters_pkey to dead_pkey;

-- --- Behind the functions -------------------------------------------------------------------------------------------

-- Whoever acts by a function, for the audit trail.
create function postrider.operator() returns text
  language plpgsql stable as $$
begin
  return 'sql:' || session_user;
end $$;

-- NOTIFY takes a lock that serialises commits, so only somebody who listens is told.
create function postrider.wake(given_channel text) returns void
  language plpgsql as $$
begin
  if exists (select from postrider.listeners l where l.channel = given_channel and l.until > statement_timestamp()) then
    perform pg_notify('postrider_' || given_channel, '');
  end if;
end $$;

-- What repeating this key means: the earlier event's id if the content is the same. None if nobody has the key.
create function postrider.earlier_event(given_tenant text, given_key text, print bytea) returns uuid
  language plpgsql as $$
declare
  earlier record;
begin
  select k.event_id, k.fingerprint into earlier
  from postrider.idempotency_keys k where k.tenant = given_tenant and k.key = given_key;
  if earlier.fingerprint <> print then
    perform postrider.refuse('PR030', 'idempotency_conflict', 'idempotency_key',
      format('the idempotency key %s belongs to the event %s, whose content differs', postrider.shown(given_key), earlier.event_id),
      'use another key for another event; under the same key everything must be the same');
  end if;
  return earlier.event_id;
end $$;

-- Claims a subject for an event: `begun` when nobody had named it before, `taken` when it was there, null when it is lost. A
-- claim that is under way is waited for. One that finds the subject reset meanwhile begins again.
create function postrider.claim_subject(given_tenant text, given_subject text, given_generation bigint, given_event uuid,
                                        given_type text, at timestamptz) returns text
  language plpgsql as $$
declare
  won      record;
  standing record;
begin
  for tries in 1..20 loop
    select o.generation, o.event_id into standing
    from postrider.once o where o.tenant = given_tenant and o.subject = given_subject;
    if standing.event_id is not null
       or coalesce(given_generation, standing.generation, 1) <> coalesce(standing.generation, 1) then
      return null;
    end if;
    insert into postrider.once as o (tenant, subject, generation, event_id, event_type, claimed_at)
    values (given_tenant, given_subject, 1, given_event, given_type, at)
    on conflict on constraint once_pkey do update
    set event_id = excluded.event_id, event_type = excluded.event_type, claimed_at = excluded.claimed_at
    where o.event_id is null and coalesce(given_generation, o.generation) = o.generation
    returning case when o.xmax = 0 then 'begun' else 'taken' end as way into won;
    if won.way is not null then
      return won.way;
    end if;
  end loop;
  raise exception using errcode = 'serialization_failure',
    message = 'the subject was reset again and again while it was claimed', hint = 'repeat the transaction';
end $$;

-- Checks an event and writes it: the key first, which decides, then the event, its deliveries and their places. Nothing is
-- written when something is refused, nor when the key or the subject is somebody else's.
create function postrider.accept(given_type text, given_payload text, given_url text, given_tenant text, given_key text,
                                 given_deliver_at timestamptz, given_metadata jsonb, given_topic text,
                                 given_subject text, given_generation bigint) returns uuid
  language plpgsql as $$
declare
  rules       postrider.admission;
  destination text;
  lane        text;
  payload     bytea;
  metadata    jsonb := coalesce(given_metadata, '{}');
  print       bytea;
  event       uuid  := postrider.new_id();
  earlier     uuid;
  way         text;
  at          timestamptz;
  due_now     bigint;
begin
  select * into strict rules from postrider.admission;
  if given_type is null or octet_length(given_type) > 255
     or given_type collate "C" !~ '^[A-Za-z0-9_:/-]+([.][A-Za-z0-9_:/-]+)*$' then
    perform postrider.refuse('PR001', 'event_type_invalid', 'event_type',
      format('%s is not an event type of at most 255 characters', postrider.shown(given_type)),
      'use letters, digits and _ - : / in parts joined by dots, such as invoice.paid');
  end if;
  perform postrider.check_payload(given_payload, rules.max_payload_bytes);
  perform postrider.check_name('PR002', 'tenant_invalid', 'tenant', given_tenant);
  perform postrider.check_name('PR006', 'topic_invalid', 'topic', given_topic);
  if given_key is not null then
    perform postrider.check_name('PR003', 'idempotency_key_invalid', 'idempotency_key', given_key);
  end if;
  if given_subject is not null then
    perform postrider.check_name('PR004', 'subject_invalid', 'subject', given_subject);
    if given_generation < 1 then
      perform postrider.refuse('PR005', 'generation_invalid', 'generation',
        format('generations are counted from 1, this one is %s', given_generation), 'leave it out to mean the current one');
    end if;
  end if;
  perform postrider.check_metadata(metadata);
  if given_deliver_at not between '0001-01-01 00:00:00+00' and '9999-12-30 22:00:00+00' then
    perform postrider.refuse('PR008', 'deliver_at_invalid', 'deliver_at',
      'it is not an instant of the years 1 to 9999', 'leave it out to deliver at once');
  end if;
  if given_url is not null then
    if not rules.bare_destinations then
      perform postrider.refuse('PR022', 'signing_secret_missing', 'destination_url',
        'an event with its own destination would go out unsigned: no signing_secret is set',
        'set signing_secret in the server''s configuration and restart it, or register the URL as an endpoint');
    end if;
    select d.canonical, d.lane into destination, lane from postrider.check_destination(given_url, rules) d;
  end if;
  payload := convert_to(given_payload, 'UTF8');

  if given_key is not null then
    print := postrider.fingerprint(given_type, payload, destination, given_deliver_at, given_topic,
                                   metadata, given_subject, given_generation);
  end if;
  if given_subject is not null then
    earlier := postrider.earlier_event(given_tenant, given_key, print);
    if earlier is not null then
      return earlier;
    end if;
    way := postrider.claim_subject(given_tenant, given_subject, given_generation, event, given_type, clock_timestamp());
    if way is null then
      -- Whoever has won may have had this key.
      return postrider.earlier_event(given_tenant, given_key, print);
    end if;
  end if;
  at := clock_timestamp();
  if given_key is not null then
    insert into postrider.idempotency_keys (tenant, key, event_id, fingerprint, created_at)
    values (given_tenant, given_key, event, print, at)
    on conflict do nothing;
    if not found then
      -- Somebody else had the key by now, so the claim is taken back.
      if way = 'begun' then
        delete from postrider.once o where o.tenant = given_tenant and o.subject = given_subject;
      elsif way = 'taken' then
        update postrider.once o set event_id = null, event_type = null, claimed_at = null
        where o.tenant = given_tenant and o.subject = given_subject;
      end if;
      earlier := postrider.earlier_event(given_tenant, given_key, print);
      if earlier is null then
        raise exception using errcode = 'serialization_failure',
          message = 'a concurrent transaction has just taken the same idempotency key, and this isolation level hides it',
          hint = 'repeat the transaction';
      end if;
      return earlier;
    end if;
  end if;

  insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at)
  values (event, given_tenant, given_type, payload, metadata, given_topic, at);
  with routed as materialized (
    select r.*, postrider.new_id() as id
    from (
      select null::uuid as endpoint_id, destination as url, lane as lane where destination is not null
      union all
      select e.id, e.url, e.lane
      from postrider.endpoints e
      where destination is null
        and e.tenant = given_tenant
        and e.status in ('active', 'paused')
        and exists (
          select from unnest(e.event_types) pattern
          where pattern = given_type
             or (right(pattern, 1) = '*' and starts_with(given_type, left(pattern, -1))
                 and length(given_type) >= length(pattern)))
      order by 1
    ) r
  ), delivering as (
    insert into postrider.deliveries (id, event_id, tenant, endpoint_id, destination_url, lane, next_attempt_at, created_at)
    select r.id, event, given_tenant, r.endpoint_id, r.url, r.lane, coalesce(given_deliver_at, at), at
    from routed r order by r.id
  ), made_ready as (
    insert into postrider.ready (lane, delivery_id)
    select r.lane, r.id from routed r where given_deliver_at is null or given_deliver_at <= at order by r.id
    returning delivery_id
  ), made_scheduled as (
    insert into postrider.scheduled (due_at, delivery_id, lane)
    select given_deliver_at, r.id, r.lane from routed r where given_deliver_at > at order by r.id
  )
  select count(*) into due_now from made_ready;
  if due_now > 0 then
    perform postrider.wake('ready');
  end if;
  return event;
end $$;

create function postrider.begin_generation(given_subject text, given_tenant text) returns bigint
  language plpgsql as $$
declare
  ending postrider.once;
  at     timestamptz;
begin
  perform postrider.check_name('PR002', 'tenant_invalid', 'tenant', given_tenant);
  perform postrider.check_name('PR004', 'subject_invalid', 'subject', given_subject);
  -- A claim that is under way is waited for: its event belongs to the generation that ends.
  insert into postrider.once as o (tenant, subject, generation)
  values (given_tenant, given_subject, 1)
  on conflict on constraint once_pkey do update set generation = o.generation
  returning o.* into ending;
  at := clock_timestamp();
  if ending.event_id is not null then
    insert into postrider.past_generations (tenant, subject, generation, event_id, event_type, claimed_at, ended_at)
    values (given_tenant, given_subject, ending.generation, ending.event_id, ending.event_type, ending.claimed_at, at);
  end if;
  update postrider.once o set generation = ending.generation + 1, event_id = null, event_type = null, claimed_at = null
  where o.tenant = given_tenant and o.subject = given_subject;
  insert into postrider.audit (id, at, tenant, operator, action, subject, reason)
  values (postrider.new_id(), at, given_tenant, postrider.operator(), 'once.reset', given_subject,
          format('generation %s begins', ending.generation + 1));
  return ending.generation + 1;
end $$;

-- --- For everybody who may ------------------------------------------------------------------------------------------

create function postrider.enqueue(event_type text, payload text, destination_url text default null, tenant text default 'default',
                                  idempotency_key text default null, deliver_at timestamptz default null,
                                  metadata jsonb default '{}', topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload, destination_url, tenant, idempotency_key, deliver_at, metadata, topic, null, null);
end $$;

create function postrider.enqueue(event_type text, payload jsonb, destination_url text default null, tenant text default 'default',
                                  idempotency_key text default null, deliver_at timestamptz default null,
                                  metadata jsonb default '{}', topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload::text, destination_url, tenant, idempotency_key, deliver_at, metadata, topic,
                          null, null);
end $$;

create function postrider.enqueue(event_type text, payload json, destination_url text default null, tenant text default 'default',
                                  idempotency_key text default null, deliver_at timestamptz default null,
                                  metadata jsonb default '{}', topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload::text, destination_url, tenant, idempotency_key, deliver_at, metadata, topic,
                          null, null);
end $$;

create function postrider.enqueue_once(subject text, event_type text, payload text, destination_url text default null,
                                       tenant text default 'default', idempotency_key text default null,
                                       deliver_at timestamptz default null, metadata jsonb default '{}',
                                       generation bigint default null, topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload, destination_url, tenant, idempotency_key, deliver_at, metadata, topic,
                          coalesce(subject, ''), generation);
end $$;

create function postrider.enqueue_once(subject text, event_type text, payload jsonb, destination_url text default null,
                                       tenant text default 'default', idempotency_key text default null,
                                       deliver_at timestamptz default null, metadata jsonb default '{}',
                                       generation bigint default null, topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload::text, destination_url, tenant, idempotency_key, deliver_at, metadata, topic,
                          coalesce(subject, ''), generation);
end $$;

create function postrider.enqueue_once(subject text, event_type text, payload json, destination_url text default null,
                                       tenant text default 'default', idempotency_key text default null,
                                       deliver_at timestamptz default null, metadata jsonb default '{}',
                                       generation bigint default null, topic text default 'postrider') returns uuid
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.accept(event_type, payload::text, destination_url, tenant, idempotency_key, deliver_at, metadata, topic,
                          coalesce(subject, ''), generation);
end $$;

create function postrider.reset_once(subject text, tenant text default 'default') returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  return postrider.begin_generation(subject, tenant);
end $$;

create function postrider.once(subject text, tenant text default 'default')
  returns table (generation bigint, event_id uuid, event_type text, claimed_at timestamptz)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select o.generation, o.event_id, o.event_type, o.claimed_at
    from postrider.once o where o.tenant = once.tenant and o.subject = once.subject;
end $$;

-- A delivery moves while an operator looks at it: tried first, and asked only then why it was not possible.
create function postrider.retry(delivery uuid) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  instant timestamptz;
  retried bigint;
  place   record;
begin
  for tries in 1..20 loop
    instant := clock_timestamp();
    with dug_up as (
      delete from postrider.dead x where x.delivery_id = delivery returning x.delivery_id as id
    ), unscheduled as (
      delete from postrider.scheduled s using postrider.deliveries d
      where d.id = delivery and d.status = 'failed' and s.due_at = d.next_attempt_at and s.delivery_id = d.id
      returning s.delivery_id as id
    ), uncancelled as materialized (
      select d.id from postrider.deliveries d where d.id = delivery and d.status = 'cancelled' for update of d
    ), unlisted as (
      delete from postrider.cancelled x using uncancelled u where x.delivery_id = u.id
    ), moved as (
      update postrider.deliveries d
      set status = case when d.status = 'failed' then 'failed' else 'pending' end,
          earlier_attempts = d.earlier_attempts + case when d.status = 'failed' then 0 else d.attempt_count end,
          attempt_count = case when d.status = 'failed' then d.attempt_count else 0 end,
          abandoned_count = case when d.status = 'failed' then d.abandoned_count else 0 end,
          error_detail = case when d.status = 'failed' then d.error_detail end,
          next_attempt_at = instant
      from (select id from dug_up union all select id from unscheduled union all select id from uncancelled) x
      where d.id = x.id
      returning d.id, d.tenant, d.lane
    ), made_ready as (
      insert into postrider.ready (lane, delivery_id) select m.lane, m.id from moved m returning delivery_id
    ), audited as (
      insert into postrider.audit (id, at, tenant, operator, action, subject)
      select postrider.new_id(), instant, m.tenant, postrider.operator(), 'delivery.retry', m.id::text from moved m
    )
    select count(*) into retried from made_ready;
    if retried > 0 then
      perform postrider.wake('ready');
      return true;
    end if;
    select d.status,
           exists (select from postrider.leases l where l.delivery_id = d.id) as is_leased,
           exists (select from postrider.scheduled s where s.due_at = d.next_attempt_at and s.delivery_id = d.id) as is_scheduled
    into place
    from postrider.deliveries d where d.id = delivery;
    if not found or place.status in ('pending', 'delivered')
       or (place.status = 'failed' and (place.is_leased or not place.is_scheduled)) then
      return false;
    end if;
  end loop;
  raise exception using errcode = 'serialization_failure',
    message = 'the delivery kept moving while it was acted on', hint = 'repeat the transaction';
end $$;

create function postrider.cancel(delivery uuid, reason text) returns boolean
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
      insert into postrider.announcements (fact, delivery_id, event_id, endpoint_id, attempt_count, at)
      select 'delivery.cancelled', m.id, m.event_id, m.endpoint_id, m.attempt_count, instant from moved m
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
