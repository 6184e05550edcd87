-- What a trial adds to a database: a table for the callers' own writes, a history kept by triggers, and views that put
-- every row into a line of JSON.
create schema trial;
create table trial.witness (number bigint primary key);

create table trial.history (
  seq         bigint generated always as identity primary key,
  at          timestamptz not null default clock_timestamp(),
  delivery_id uuid not null,
  line        json not null
);

create function trial.micros(at timestamptz) returns bigint language sql immutable as
  $$ select (extract(epoch from at) * 1000000)::bigint $$;

create function trial.state(d postrider.deliveries) returns json language sql immutable as $$
  select json_build_object('status', d.status, 'attempt_count', d.attempt_count, 'earlier_attempts', d.earlier_attempts,
    'abandoned_count', d.abandoned_count, 'last_attempted_at', trial.micros(d.last_attempted_at),
    'next_attempt_at', trial.micros(d.next_attempt_at))
$$;

create function trial.note_lease() returns trigger language plpgsql as $$
declare
  lease postrider.leases := coalesce(new, old);
begin
  insert into trial.history (delivery_id, line)
  values (lease.delivery_id, json_build_object('deed', case tg_op when 'INSERT' then 'claimed' else 'ended' end,
    'token', lease.token, 'owner', lease.owner, 'until', trial.micros(lease.lease_until)));
  return null;
end $$;

create function trial.note_delivery() returns trigger language plpgsql as $$
begin
  insert into trial.history (delivery_id, line)
  values (new.id, json_build_object('deed', 'changed', 'before', trial.state(old), 'after', trial.state(new)));
  return null;
end $$;

create trigger trial_lease after insert or delete on postrider.leases for each row execute function trial.note_lease();
create trigger trial_delivery after update on postrider.deliveries for each row execute function trial.note_delivery();

create view trial.events_lines as
  select json_build_object('id', id, 'payload', convert_from(payload, 'UTF8')) as line from postrider.events;
create view trial.witnesses_lines as select to_json(number) as line from trial.witness;
create view trial.deliveries_lines as
  select (trial.state(d)::jsonb || jsonb_build_object('id', d.id, 'event_id', d.event_id)) as line
  from postrider.deliveries d;
create view trial.attempts_lines as
  select json_build_object('delivery_id', delivery_id, 'number', number, 'token', token, 'worker_id', worker_id,
    'outcome', outcome, 'status_code', status_code) as line from postrider.attempts;
create view trial.announcements_lines as
  select json_build_object('fact', fact, 'delivery_id', delivery_id) as line from postrider.announcements order by position;
create view trial.dead_lines as
  select json_build_object('delivery_id', delivery_id, 'reason', reason) as line from postrider.dead;
create view trial.history_lines as
  select (line::jsonb || jsonb_build_object('delivery_id', delivery_id, 'at', trial.micros(at))) as line
  from trial.history order by seq;
create view trial.waiting_lines as
  select to_json(delivery_id) as line from postrider.ready
  union all select to_json(delivery_id) from postrider.scheduled
  union all select to_json(delivery_id) from postrider.leases;
