-- What the functions accept stays readable, and everything in the schema says what it is.

-- --- Metadata -------------------------------------------------------------------------------------------------------

-- JSON as the engine writes it: without spaces, names in the order of their bytes, fractions without zeros at their end.
--
-- The engine reads a number as a 64-bit one. What is larger than these could be written here, and then neither shown nor
-- announced, and nothing after it would be announced either. It has more than 300 digits, so that metadata which is short enough not to
-- be looked into (`check_metadata`) has none.
create or replace function postrider.canonical_json(value jsonb, depth integer) returns text
  language plpgsql as $$
begin
  if depth > 100 and jsonb_typeof(value) in ('object', 'array') then
    perform postrider.refuse('PR007', 'metadata_too_deep', 'metadata', 'metadata is nested more than 100 levels deep', 'make it flat');
  end if;
  case jsonb_typeof(value)
    when 'object' then
      return (select coalesce('{' || string_agg(to_json(x.key)::text || ':' || postrider.canonical_json(x.value, depth + 1), ','
                                                order by x.key collate "C") || '}', '{}')
              from jsonb_each(value) x);
    when 'array' then
      return (select coalesce('[' || string_agg(postrider.canonical_json(x.value, depth + 1), ',' order by x.n) || ']', '[]')
              from jsonb_array_elements(value) with ordinality x (value, n));
    when 'number' then
      if abs(value::numeric) > 1e308 then
        perform postrider.refuse('PR007', 'metadata_invalid', 'metadata', 'metadata has a number beyond 1e308',
                                 'pass it as a text');
      end if;
      if strpos(value::text, '.') = 0 then
        return value::text;
      end if;
      return rtrim(value::text, '0') || case when rtrim(value::text, '0') like '%.' then '0' else '' end;
    else
      return value::text;
  end case;
end $$;

-- As before, and it must be UTF-8, which a database with the encoding SQL_ASCII does not see to by itself.
create or replace function postrider.check_metadata(metadata jsonb) returns void
  language plpgsql as $$
declare
  size integer := octet_length(convert_to(metadata::text, 'UTF8'));
begin
  if jsonb_typeof(metadata) <> 'object' then
    perform postrider.refuse('PR007', 'metadata_invalid', 'metadata', 'metadata is not an object', 'pass {"name": "value"}');
  end if;
  -- What is so short is neither too large nor too deep, nor has it too large a number.
  if size > 200 then
    size := octet_length(postrider.canonical_json(metadata, 1));
  end if;
  if size > 16384 then
    perform postrider.refuse('PR007', 'metadata_too_large', 'metadata',
      format('metadata has %s bytes, at most 16384 are taken', size), 'keep in it what identifies the matter');
  end if;
end $$;

-- --- Who asks -------------------------------------------------------------------------------------------------------

-- A name that nothing can have is a mistake here too, rather than a subject that nobody has named.
create or replace function postrider.once(subject text, tenant text default 'default')
  returns table (generation bigint, event_id uuid, event_type text, claimed_at timestamptz)
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform postrider.check_name('PR002', 'tenant_invalid', 'tenant', tenant);
  perform postrider.check_name('PR004', 'subject_invalid', 'subject', subject);
  return query
    select o.generation, o.event_id, o.event_type, o.claimed_at
    from postrider.once o where o.tenant = once.tenant and o.subject = once.subject;
end $$;

-- The owner calls these, with whatever search path the owner has.
alter procedure postrider.grant_to(name, boolean) set search_path = pg_catalog, pg_temp;
alter procedure postrider.revoke_from(name) set search_path = pg_catalog, pg_temp;

-- --- What it says to who asks (\d+, \df+, \dv+) ------------------------------------------------------------------------

comment on table postrider.migrations is 'Which migrations were applied, with a checksum of each.';
comment on table postrider.events is 'Events as they were accepted; payload is the bytes that are sent.';
comment on table postrider.deliveries is 'One row per event and destination: its status and its history in short.';
comment on table postrider.ready is 'Place of deliveries that are due, in lanes.';
comment on table postrider.scheduled is 'Place of deliveries that are due later.';
comment on table postrider.leases is 'Place of deliveries in flight: who holds the right to settle each, and until when.';
comment on table postrider.dead is 'Place of deliveries that are given up; people look at dead_letters.';
comment on table postrider.cancelled is 'Place of deliveries that an operator has stopped.';
comment on table postrider.attempts is 'One row per attempt.';
comment on table postrider.endpoints is 'Registered destinations; secrets in settings are encrypted.';
comment on table postrider.meters is 'Tokens of endpoints that have a limit of their own.';
comment on table postrider.idempotency_keys is 'Keys that are taken, with what their event was.';
comment on table postrider.once is 'Subjects in their current generation, and which event has claimed each.';
comment on table postrider.past_generations is 'Who had claimed a subject in generations that are over.';
comment on table postrider.announcements is 'What became of deliveries, in order, for subscribers.';
comment on table postrider.removed_events is 'What announcements still say of events that retention has removed.';
comment on table postrider.audit is 'What operators did.';
comment on table postrider.api_keys is 'Keys of the HTTP API, as digests.';
comment on table postrider.listeners is 'Who would like to be woken, and until when.';
comment on view postrider.delivery_lines is 'Deliveries with their event''s type and their lease. Internal.';
comment on function postrider.new_id() is 'A UUIDv7 of the database''s clock. Internal.';
comment on function postrider.first_id_at(timestamptz) is 'The lowest id that can have been made at an instant. Internal.';
comment on function postrider.refuse(text, text, text, text, text) is 'Ends the statement with an error that programs can tell apart. Internal.';
comment on function postrider.shown(text) is 'A value as an error can show it. Internal.';
comment on function postrider.check_name(text, text, text, text) is 'Refuses a tenant, key, subject or topic that cannot be one. Internal.';
comment on function postrider.is_json(text) is 'Whether a text is one JSON value. Internal.';
comment on function postrider.check_payload(text, bigint) is 'Refuses a payload that cannot be one. Internal.';
comment on function postrider.canonical_json(jsonb, integer) is 'JSON as the engine writes it. Internal.';
comment on function postrider.check_metadata(jsonb) is 'Refuses metadata that cannot be such. Internal.';
comment on function postrider.fingerprint(text, bytea, text, timestamptz, text, jsonb, text, bigint) is
  'What must be equal for two events under one idempotency key to be the same. Internal.';
comment on function postrider.address_of(text) is 'An IP address, or null if the text is none. Internal.';
comment on function postrider.why_not_public(inet) is 'Why an address is not on the public internet; null if it is. Internal.';
comment on function postrider.why_not_a_public_name(text, postrider.admission) is 'Why a host name is not for everybody; null if it is. Internal.';
comment on function postrider.is_listed(text, text[]) is 'Whether a host matches one of the patterns. Internal.';
comment on function postrider.check_destination(text, postrider.admission) is 'Refuses a destination, or returns its canonical form and its lane. Internal.';
comment on function postrider.operator() is 'Who acts, for the audit trail. Internal.';
comment on function postrider.wake(text) is 'Notifies dispatchers or subscribers if there are any. Internal.';
comment on function postrider.earlier_event(text, text, bytea) is 'The event that has an idempotency key; refuses other content. Internal.';
comment on function postrider.claim_subject(text, text, bigint, uuid, text, timestamptz) is 'Claims a subject for an event. Internal.';
comment on function postrider.accept(text, text, text, text, text, timestamptz, jsonb, text, text, bigint) is 'Checks an event and writes it. Internal.';
comment on function postrider.begin_generation(text, text) is 'Begins the next generation of a subject. Internal.';
