-- The places of a delivery, and what is kept about it.
--
-- A delivery is in exactly one place: `ready`, `scheduled`, `leases`, or settled. The places are small tables of rows
-- that are inserted and deleted, never updated (but for a lease's renewal); `deliveries` is the permanent record.
--
-- There are no foreign keys between these tables. Each would cost a lookup and a row lock on the parent for every
-- insert, on the path that every delivery takes several times, and the one writer of these tables is Postrider, whose
-- statements each write parent and child together. The primary keys and the CHECKs state what is stated cheaply.

-- A UUIDv7 of the database's clock: 48 bits of milliseconds, the version, 12 bits of the fraction of the millisecond
-- (so that the ids of one statement sort as they were made), the rest random. It is one expression in which nothing is
-- used twice, so that Postgres inlines it.
create function postrider.new_id() returns uuid
  language sql volatile parallel safe
  return (overlay(lpad(to_hex(floor(extract(epoch from clock_timestamp()) * 4096000)::bigint), 15, '0')
                  placing '7' from 13 for 0)
          || substr(gen_random_uuid()::text, 20))::uuid;

-- The lowest id that can have been minted at an instant: turns a time into a bound on ids.
create function postrider.first_id_at(at timestamptz) returns uuid
  language sql immutable parallel safe
  return (lpad(to_hex(greatest(0, floor(extract(epoch from at) * 1000))::bigint), 12, '0') || '70000000000000000000')::uuid;

create table postrider.events (
  id         uuid        primary key,
  tenant     text        not null,
  type       text        not null,
  payload    bytea       not null,
  metadata   jsonb       not null,
  topic      text        not null,
  created_at timestamptz not null
);
-- Payloads are sent as they are; compressing them costs more processor time than it saves space.
alter table postrider.events alter column payload set storage external;

-- Half of each page is left free, and no index covers a column that changes, so that every update stays on its page
-- and writes no index entry.
create table postrider.deliveries (
  id                uuid        primary key,
  event_id          uuid        not null,
  tenant            text        not null,
  endpoint_id       uuid,
  destination_url   text        not null,
  lane              text        not null,
  status            text        not null default 'pending',
  attempt_count     integer     not null default 0,
  earlier_attempts  integer     not null default 0,
  abandoned_count   integer     not null default 0,
  next_attempt_at   timestamptz,
  last_attempted_at timestamptz,
  error_detail      text,
  created_at        timestamptz not null,
  constraint status_is_known check (status in ('pending', 'failed', 'delivered', 'dead', 'cancelled')),
  constraint settled_has_no_next_attempt
    check ((next_attempt_at is null) = (status in ('delivered', 'dead', 'cancelled'))),
  constraint counts_are_not_negative check (attempt_count >= 0 and earlier_attempts >= 0 and abandoned_count >= 0),
  constraint pending_has_no_attempt_in_this_round check (status <> 'pending' or attempt_count = 0),
  constraint failed_or_delivered_has_an_attempt
    check (status not in ('failed', 'delivered') or (attempt_count > 0 and last_attempted_at is not null))
) with (fillfactor = 50);
create index deliveries_by_event on postrider.deliveries (event_id);
create index deliveries_by_endpoint on postrider.deliveries (endpoint_id, id);
create index deliveries_by_tenant on postrider.deliveries (tenant, id);

-- The queues are vacuumed after a fixed number of dead rows and at full speed: they turn over completely all the
-- time, and a queue that is not vacuumed slows every claim.
create table postrider.ready (
  lane        text collate "C" not null,
  position    bigint           generated always as identity,
  delivery_id uuid             not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
create index ready_by_lane on postrider.ready (lane, position);

create table postrider.scheduled (
  due_at      timestamptz      not null,
  delivery_id uuid             not null,
  lane        text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
create index scheduled_by_due_at on postrider.scheduled (due_at);

-- What is in flight. Holding a row here is the right to settle. `lease_until` is not indexed: renewals stay on their
-- page, and the table is as small as what is in flight.
create table postrider.leases (
  delivery_id uuid             primary key,
  lane        text collate "C" not null,
  owner       text             not null,
  token       uuid             not null,
  lease_until timestamptz      not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);

create table postrider.dead_letters (
  delivery_id uuid        primary key,
  reason      text        not null,
  died_at     timestamptz not null,
  constraint reason_is_known check (reason in ('exhausted', 'abandoned'))
);

-- One row per attempt, for ever or until retention. The token is what tells a settle that is repeated because its
-- answer was lost from one whose lease was lost.
create table postrider.attempts (
  delivery_id      uuid        not null,
  number           integer     not null,
  token            uuid        not null,
  outcome          text        not null,
  status_code      integer,
  started_at       timestamptz not null,
  duration_ms      integer     not null,
  response_excerpt text,
  error_detail     text,
  worker_id        text        not null,
  primary key (delivery_id, number),
  constraint outcome_is_known
    check (outcome in ('response', 'timeout', 'connect', 'tls', 'dns', 'blocked', 'protocol')),
  constraint only_a_response_has_a_status_code check (status_code is null or outcome = 'response'),
  constraint number_counts_from_one check (number > 0)
);

-- `lane` is the id's text, so that a claim finds the endpoint of a lane by one index lookup, and finds nothing for the
-- lane of a bare destination. `max_in_flight` repeats what the settings say, for the claim.
create table postrider.endpoints (
  id            uuid             primary key,
  tenant        text             not null,
  url           text             not null,
  event_types   text[]           not null,
  status        text             not null default 'active',
  status_reason text,
  settings      text             not null,
  max_in_flight integer,
  lane          text collate "C" generated always as (id::text) stored,
  created_at    timestamptz      not null,
  constraint status_is_known check (status in ('active', 'paused', 'disabled')),
  constraint active_needs_no_reason check (status <> 'active' or status_reason is null),
  constraint max_in_flight_is_positive check (max_in_flight > 0)
);
create unique index endpoints_by_lane on postrider.endpoints (lane);
create index endpoints_by_tenant on postrider.endpoints (tenant, id);

-- A table of its own, since a key is taken for ever, beyond any retention of its event.
create table postrider.idempotency_keys (
  tenant      text        not null,
  key         text        not null,
  event_id    uuid        not null,
  fingerprint bytea       not null,
  created_at  timestamptz not null,
  primary key (tenant, key)
);

-- Narrow: the topic and the metadata are the event's (or of `removed_events`), and are joined when somebody reads.
create table postrider.announcements (
  position      bigint      generated always as identity primary key,
  fact          text        not null,
  delivery_id   uuid        not null,
  event_id      uuid        not null,
  endpoint_id   uuid,
  attempt_count integer     not null,
  at            timestamptz not null,
  constraint fact_is_known check (fact in
    ('delivery.delivered', 'delivery.failed', 'delivery.dead', 'delivery.cancelled', 'endpoint.disabled'))
);

-- What announcements say of events that retention has removed while their announcements were still young: a delivery may
-- end long after its event was enqueued. A row goes when the last of its announcements is old as well.
create table postrider.removed_events (
  event_id          uuid        primary key,
  topic             text        not null,
  metadata          jsonb       not null,
  last_announced_at timestamptz not null
);
create index removed_events_by_age on postrider.removed_events (last_announced_at);

-- What operators did. The subject is an endpoint where the action says so, otherwise a delivery.
create table postrider.audit (
  id       uuid        primary key,
  at       timestamptz not null,
  operator text        not null,
  action   text        not null,
  subject  uuid        not null,
  reason   text,
  constraint action_is_known check (action in
    ('delivery.retry', 'delivery.cancel', 'endpoint.pause', 'endpoint.resume', 'endpoint.disable'))
);

-- Who would like to be woken. NOTIFY takes a lock that serialises all commits of the database, so writers notify only
-- while somebody listens.
create table postrider.listeners (
  id      uuid        not null,
  channel text        not null,
  until   timestamptz not null,
  primary key (id, channel),
  constraint channel_is_known check (channel in ('ready', 'announced'))
) with (fillfactor = 50);

-- A delivery as people look at it.
create view postrider.delivery_lines as
  select d.id, d.tenant, d.event_id, e.type as event_type, d.endpoint_id, d.destination_url, d.status, d.attempt_count,
         d.earlier_attempts, d.abandoned_count, d.next_attempt_at, d.last_attempted_at, d.error_detail,
         l.owner as lease_owner, l.lease_until, d.created_at
  from postrider.deliveries d
  join postrider.events e on e.id = d.event_id
  left join postrider.leases l on l.delivery_id = d.id;
