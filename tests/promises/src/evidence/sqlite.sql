-- The same as for Postgres. Triggers run in the transaction of what they note, on the writer's own connection.
create table trial_witness (number integer primary key) strict;

create table trial_history (
  seq         integer primary key autoincrement,
  at          integer not null default (cast(unixepoch('subsec') * 1000 as integer) * 1000),
  delivery_id blob not null,
  line        text not null
) strict;

create trigger trial_claimed after insert on postrider_leases begin
  insert into trial_history (delivery_id, line)
  values (new.delivery_id, json_object('deed', 'claimed', 'token', lower(hex(new.token)), 'owner', new.owner,
    'until', new.lease_until));
end;

create trigger trial_ended after delete on postrider_leases begin
  insert into trial_history (delivery_id, line)
  values (old.delivery_id, json_object('deed', 'ended', 'token', lower(hex(old.token)), 'owner', old.owner,
    'until', old.lease_until));
end;

create trigger trial_changed after update on postrider_deliveries begin
  insert into trial_history (delivery_id, line)
  values (new.id, json_object('deed', 'changed',
    'before', json_object('status', old.status, 'attempt_count', old.attempt_count,
      'earlier_attempts', old.earlier_attempts, 'abandoned_count', old.abandoned_count,
      'last_attempted_at', old.last_attempted_at, 'next_attempt_at', old.next_attempt_at),
    'after', json_object('status', new.status, 'attempt_count', new.attempt_count,
      'earlier_attempts', new.earlier_attempts, 'abandoned_count', new.abandoned_count,
      'last_attempted_at', new.last_attempted_at, 'next_attempt_at', new.next_attempt_at)));
end;

create view trial_events_lines as
  select json_object('id', lower(hex(id)), 'payload', cast(payload as text)) as line from postrider_events;
create view trial_witnesses_lines as select cast(number as text) as line from trial_witness;
create view trial_deliveries_lines as
  select json_object('id', lower(hex(id)), 'event_id', lower(hex(event_id)), 'status', status,
    'attempt_count', attempt_count, 'earlier_attempts', earlier_attempts, 'abandoned_count', abandoned_count,
    'last_attempted_at', last_attempted_at, 'next_attempt_at', next_attempt_at) as line from postrider_deliveries;
create view trial_attempts_lines as
  select json_object('delivery_id', lower(hex(delivery_id)), 'number', number, 'token', lower(hex(token)),
    'worker_id', worker_id, 'outcome', outcome, 'status_code', status_code) as line from postrider_attempts;
create view trial_announcements_lines as
  select json_object('fact', fact, 'delivery_id', lower(hex(delivery_id))) as line
  from postrider_announcements order by position;
create view trial_dead_lines as
  select json_object('delivery_id', lower(hex(delivery_id)), 'reason', reason) as line from postrider_dead_letters;
create view trial_history_lines as
  select json_patch(line, json_object('delivery_id', lower(hex(delivery_id)), 'at', at)) as line
  from trial_history order by seq;
create view trial_waiting_lines as
  select json_quote(lower(hex(delivery_id))) as line from postrider_ready
  union all select json_quote(lower(hex(delivery_id))) from postrider_scheduled
  union all select json_quote(lower(hex(delivery_id))) from postrider_leases;
