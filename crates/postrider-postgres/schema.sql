-- What the migrations come to, as the database's catalog says. Not run: a test compares it, and writes it anew
-- when POSTRIDER_BLESS is 1.

-- function postrider.accept(given_type text, given_payload text, given_url text, given_tenant text, given_key text, given_deliver_at timestamp with time zone, given_metadata jsonb, given_topic text, given_subject text, given_generation bigint) returns uuid, volatile, plpgsql
-- comment: Checks an event and writes it. Internal.

-- function postrider.address_of(value text) returns inet, immutable, plpgsql
-- comment: An IP address, or null if the text is none. Internal.

-- function postrider.begin_generation(given_subject text, given_tenant text) returns bigint, volatile, plpgsql
-- comment: Begins the next generation of a subject. Internal.

-- function postrider.cancel(delivery uuid, reason text) returns boolean, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Stops a delivery that waits or flies. False if there is none, or if it is settled. Audited.

-- function postrider.canonical_json(value jsonb, depth integer) returns text, volatile, plpgsql
-- comment: JSON as the engine writes it. Internal.

-- function postrider.check_destination(url text, rules postrider.admission, OUT canonical text, OUT lane text) returns record, volatile, plpgsql
-- comment: Refuses a destination, or returns its canonical form and its lane. Internal.

-- function postrider.check_metadata(metadata jsonb) returns void, volatile, plpgsql
-- comment: Refuses metadata that cannot be such. Internal.

-- function postrider.check_name(state text, code text, argument text, value text) returns void, volatile, plpgsql
-- comment: Refuses a tenant, key, subject or topic that cannot be one. Internal.

-- function postrider.check_payload(payload text, max_bytes bigint) returns void, volatile, plpgsql
-- comment: Refuses a payload that cannot be one. Internal.

-- function postrider.claim_subject(given_tenant text, given_subject text, given_generation bigint, given_event uuid, given_type text, at timestamp with time zone) returns text, volatile, plpgsql
-- comment: Claims a subject for an event. Internal.

-- function postrider.earlier_event(given_tenant text, given_key text, print bytea) returns uuid, volatile, plpgsql
-- comment: The event that has an idempotency key; refuses other content. Internal.

-- function postrider.enqueue(event_type text, payload json, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event's id.

-- function postrider.enqueue(event_type text, payload jsonb, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event's id.

-- function postrider.enqueue(event_type text, payload text, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Enqueues an event in the current transaction and returns its id: to destination_url, or else to all endpoints of the tenant that want its type. The same idempotency key with the same content returns the first event's id.

-- function postrider.enqueue_once(subject text, event_type text, payload json, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, generation bigint DEFAULT NULL::bigint, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.

-- function postrider.enqueue_once(subject text, event_type text, payload jsonb, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, generation bigint DEFAULT NULL::bigint, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.

-- function postrider.enqueue_once(subject text, event_type text, payload text, destination_url text DEFAULT NULL::text, tenant text DEFAULT 'default'::text, idempotency_key text DEFAULT NULL::text, deliver_at timestamp with time zone DEFAULT NULL::timestamp with time zone, metadata jsonb DEFAULT '{}'::jsonb, generation bigint DEFAULT NULL::bigint, topic text DEFAULT 'postrider'::text) returns uuid, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: As enqueue, but only if nobody has claimed the subject in its current generation (or in the one that is given); null if somebody has. The claim and the event exist together or not at all.

-- function postrider.fingerprint(event_type text, payload bytea, destination text, deliver_at timestamp with time zone, topic text, metadata jsonb, subject text, generation bigint) returns bytea, volatile, plpgsql
-- comment: What must be equal for two events under one idempotency key to be the same. Internal.

-- function postrider.first_id_at(at timestamp with time zone) returns uuid, immutable, sql
-- comment: The lowest id that can have been made at an instant. Internal.

-- function postrider.is_json(value text) returns boolean, immutable, plpgsql
-- comment: Whether a text is one JSON value. Internal.

-- function postrider.is_listed(host text, patterns text[]) returns boolean, immutable, plpgsql
-- comment: Whether a host matches one of the patterns. Internal.

-- function postrider.new_id() returns uuid, volatile, sql
-- comment: A UUIDv7 of the database's clock. Internal.

-- function postrider.once(subject text, tenant text DEFAULT 'default'::text) returns TABLE(generation bigint, event_id uuid, event_type text, claimed_at timestamp with time zone), stable, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: How a subject stands: its generation, and which event has claimed it, if one has. No row if nobody has named it yet.

-- function postrider.operator() returns text, stable, plpgsql
-- comment: Who acts, for the audit trail. Internal.

-- function postrider.refuse(state text, code text, argument text, detail text, hint text) returns void, volatile, plpgsql
-- comment: Ends the statement with an error that programs can tell apart. Internal.

-- function postrider.reset_once(subject text, tenant text DEFAULT 'default'::text) returns bigint, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Begins the next generation of a subject, in which it can be claimed again, and returns it. Audited.

-- function postrider.retry(delivery uuid) returns boolean, volatile, plpgsql, security definer, search_path=pg_catalog, pg_temp
-- comment: Makes a dead, cancelled or failed delivery due now. False if there is none, or if it is delivered, due or in flight. Audited.

-- function postrider.shown(value text) returns text, immutable, plpgsql
-- comment: A value as an error can show it. Internal.

-- function postrider.wake(given_channel text) returns void, volatile, plpgsql
-- comment: Notifies dispatchers or subscribers if there are any. Internal.

-- function postrider.why_not_a_public_name(name text, rules postrider.admission) returns text, immutable, plpgsql
-- comment: Why a host name is not for everybody; null if it is. Internal.

-- function postrider.why_not_public(address inet) returns text, immutable, plpgsql
-- comment: Why an address is not on the public internet; null if it is. Internal.

-- procedure postrider.grant_to(IN role name, IN operate boolean DEFAULT false), volatile, plpgsql, search_path=pg_catalog, pg_temp
-- comment: Lets a role enqueue, claim and reset subjects; with operate also retry, cancel, and read the views. Only the owner of the schema can call it.

-- procedure postrider.revoke_from(IN role name), volatile, plpgsql, search_path=pg_catalog, pg_temp
-- comment: Takes back what grant_to gave.

create table postrider.admission (
  only_row boolean not null default true,
  max_payload_bytes bigint not null default 262144,
  bare_destinations boolean not null default true,
  require_https boolean not null default false,
  allowed_hosts text[] not null default '{}'::text[],
  allowed_networks inet[] not null default '{}'::inet[],
  changed_at timestamp with time zone not null default clock_timestamp(),
  constraint admission_pkey PRIMARY KEY (only_row),
  constraint there_is_one_row CHECK (only_row)
);
-- comment: The rules by which the functions accept events. Written by processes that have rules of their own when they apply migrations.

create table postrider.announced (
  position bigint not null generated always as identity,
  fact text not null,
  delivery_ids uuid[] storage external not null,
  event_ids uuid[] storage external not null,
  endpoint_ids uuid[] storage external not null,
  attempt_counts integer[] storage external not null,
  at timestamp with time zone not null,
  count integer not null,
  constraint announced_pkey PRIMARY KEY ("position"),
  constraint fact_is_known CHECK ((fact = ANY (ARRAY['delivery.delivered'::text, 'delivery.failed'::text, 'delivery.dead'::text, 'delivery.cancelled'::text, 'endpoint.disabled'::text]))),
  constraint lists_are_of_one_length CHECK ((((count >= 1) AND (count <= 1000)) AND (cardinality(delivery_ids) = count) AND (cardinality(event_ids) = count) AND (cardinality(endpoint_ids) = count) AND (cardinality(attempt_counts) = count)))
);
-- comment: What became of deliveries, in order, for subscribers; what is told at once is one row.

create table postrider.api_keys (
  id uuid not null,
  name text not null,
  tenant text,
  scope text not null,
  digest bytea not null,
  was_first boolean not null,
  created_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  constraint api_keys_pkey PRIMARY KEY (id),
  constraint digest_has_32_bytes CHECK ((length(digest) = 32)),
  constraint scope_is_known CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text, 'admin'::text])))
);
CREATE UNIQUE INDEX api_keys_by_digest ON postrider.api_keys USING btree (digest);
CREATE UNIQUE INDEX api_keys_first ON postrider.api_keys USING btree (was_first) WHERE was_first;
-- comment: Keys of the HTTP API, as digests.

create table postrider.attempts (
  delivery_id uuid not null,
  number integer not null,
  token uuid not null,
  outcome text not null,
  status_code integer,
  started_at timestamp with time zone not null,
  duration_ms integer not null,
  response_excerpt text,
  error_detail text,
  worker_id text not null,
  constraint attempts_pkey PRIMARY KEY (delivery_id, number),
  constraint number_counts_from_one CHECK ((number > 0)),
  constraint only_a_response_has_a_status_code CHECK (((status_code IS NULL) OR (outcome = 'response'::text))),
  constraint outcome_is_known CHECK ((outcome = ANY (ARRAY['response'::text, 'timeout'::text, 'connect'::text, 'tls'::text, 'dns'::text, 'blocked'::text, 'protocol'::text])))
);
-- comment: One row per attempt.

create table postrider.audit (
  id uuid not null,
  at timestamp with time zone not null,
  operator text not null,
  action text not null,
  subject text not null,
  reason text,
  tenant text,
  constraint audit_pkey PRIMARY KEY (id),
  constraint action_is_known CHECK ((action = ANY (ARRAY['delivery.retry'::text, 'delivery.cancel'::text, 'endpoint.create'::text, 'endpoint.update'::text, 'endpoint.rotate_secret'::text, 'endpoint.reseal'::text, 'endpoint.pause'::text, 'endpoint.resume'::text, 'endpoint.disable'::text, 'endpoint.remove'::text, 'once.reset'::text, 'key.create'::text, 'key.revoke'::text])))
);
CREATE INDEX audit_by_tenant ON postrider.audit USING btree (tenant, id);
-- comment: What operators did.

create table postrider.cancelled (
  delivery_id uuid not null,
  constraint cancelled_pkey PRIMARY KEY (delivery_id)
);
-- comment: Place of deliveries that an operator has stopped.

create table postrider.dead (
  delivery_id uuid not null,
  reason text not null,
  died_at timestamp with time zone not null,
  constraint dead_pkey PRIMARY KEY (delivery_id),
  constraint reason_is_known CHECK ((reason = ANY (ARRAY['exhausted'::text, 'abandoned'::text])))
);
-- comment: Place of deliveries that are given up; people look at dead_letters.

create table postrider.deliveries (
  id uuid not null,
  event_id uuid not null,
  tenant text not null,
  endpoint_id uuid,
  destination_url text not null,
  lane text not null,
  status text not null default 'pending'::text,
  attempt_count integer not null default 0,
  earlier_attempts integer not null default 0,
  abandoned_count integer not null default 0,
  next_attempt_at timestamp with time zone,
  last_attempted_at timestamp with time zone,
  error_detail text,
  created_at timestamp with time zone not null,
  constraint deliveries_pkey PRIMARY KEY (id),
  constraint counts_are_not_negative CHECK (((attempt_count >= 0) AND (earlier_attempts >= 0) AND (abandoned_count >= 0))),
  constraint failed_or_delivered_has_an_attempt CHECK (((status <> ALL (ARRAY['failed'::text, 'delivered'::text])) OR ((attempt_count > 0) AND (last_attempted_at IS NOT NULL)))),
  constraint pending_has_no_attempt_in_this_round CHECK (((status <> 'pending'::text) OR (attempt_count = 0))),
  constraint settled_has_no_next_attempt CHECK (((next_attempt_at IS NULL) = (status = ANY (ARRAY['delivered'::text, 'dead'::text, 'cancelled'::text])))),
  constraint status_is_known CHECK ((status = ANY (ARRAY['pending'::text, 'failed'::text, 'delivered'::text, 'dead'::text, 'cancelled'::text])))
) with (fillfactor=50);
CREATE INDEX deliveries_by_endpoint ON postrider.deliveries USING btree (endpoint_id, id);
CREATE INDEX deliveries_by_event ON postrider.deliveries USING btree (event_id);
CREATE INDEX deliveries_by_tenant ON postrider.deliveries USING btree (tenant, id);
-- comment: One row per event and destination: its status and its history in short.

create table postrider.endpoints (
  id uuid not null,
  tenant text not null,
  url text not null,
  event_types text[] not null,
  status text not null default 'active'::text,
  status_reason text,
  settings text not null,
  max_in_flight integer,
  lane text collate "C" generated always as ((id)::text) stored,
  created_at timestamp with time zone not null,
  revision bigint not null default 1,
  failing_since timestamp with time zone,
  rate_per_second double precision,
  rate_burst double precision,
  removed_at timestamp with time zone,
  is_cleared boolean not null default false,
  constraint endpoints_pkey PRIMARY KEY (id),
  constraint active_needs_no_reason CHECK (((status <> 'active'::text) OR (status_reason IS NULL))),
  constraint max_in_flight_is_positive CHECK ((max_in_flight > 0)),
  constraint only_removed_is_cleared CHECK (((status = 'removed'::text) OR (NOT is_cleared))),
  constraint rate_has_a_burst CHECK (((rate_per_second IS NULL) = (rate_burst IS NULL))),
  constraint rate_is_positive_and_its_burst_at_least_one CHECK (((rate_per_second > (0)::double precision) AND (rate_burst >= (1)::double precision))),
  constraint removed_has_a_time CHECK (((status = 'removed'::text) = (removed_at IS NOT NULL))),
  constraint removed_has_no_settings CHECK (((status <> 'removed'::text) OR (settings = '{}'::text))),
  constraint revision_counts_from_one CHECK ((revision > 0)),
  constraint status_is_known CHECK ((status = ANY (ARRAY['active'::text, 'paused'::text, 'disabled'::text, 'removed'::text])))
) with (fillfactor=70);
CREATE UNIQUE INDEX endpoints_by_lane ON postrider.endpoints USING btree (lane);
CREATE INDEX endpoints_by_tenant ON postrider.endpoints USING btree (tenant, id);
CREATE INDEX endpoints_removed ON postrider.endpoints USING btree (id) WHERE (status = 'removed'::text);
-- comment: Registered destinations; secrets in settings are encrypted.

create table postrider.events (
  id uuid not null,
  tenant text not null,
  type text not null,
  payload bytea storage external not null,
  metadata jsonb not null,
  topic text not null,
  created_at timestamp with time zone not null,
  constraint events_pkey PRIMARY KEY (id)
);
CREATE INDEX events_by_tenant ON postrider.events USING btree (tenant, id);
-- comment: Events as they were accepted; payload is the bytes that are sent.

create table postrider.idempotency_keys (
  tenant text not null,
  key text not null,
  event_id uuid not null,
  fingerprint bytea not null,
  created_at timestamp with time zone not null,
  constraint idempotency_keys_pkey PRIMARY KEY (tenant, key)
);
-- comment: Keys that are taken, with what their event was.

create table postrider.leases (
  delivery_id uuid not null,
  lane text collate "C" not null,
  owner text not null,
  token uuid not null,
  lease_until timestamp with time zone not null,
  is_metered boolean not null default false,
  constraint leases_pkey PRIMARY KEY (delivery_id)
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=50000);
CREATE INDEX leases_metered ON postrider.leases USING btree (lane) WHERE is_metered;
-- comment: Place of deliveries in flight: who holds the right to settle each, and until when.

create table postrider.listeners (
  id uuid not null,
  channel text not null,
  until timestamp with time zone not null,
  constraint listeners_pkey PRIMARY KEY (id, channel),
  constraint channel_is_known CHECK ((channel = ANY (ARRAY['ready'::text, 'announced'::text])))
) with (fillfactor=50);
-- comment: Who would like to be woken, and until when.

create table postrider.meters (
  lane text collate "C" not null,
  tokens double precision not null,
  refilled_at timestamp with time zone not null,
  constraint meters_pkey PRIMARY KEY (lane),
  constraint tokens_are_not_negative CHECK ((tokens >= (0)::double precision))
) with (fillfactor=50, autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000);
-- comment: Tokens of endpoints that have a limit of their own.

create table postrider.migrations (
  version integer not null,
  name text not null,
  sha256 bytea not null,
  applied_at timestamp with time zone not null default clock_timestamp(),
  constraint migrations_pkey PRIMARY KEY (version)
);
-- comment: Which migrations were applied, with a checksum of each.

create table postrider.once (
  tenant text not null,
  subject text not null,
  generation bigint not null,
  event_id uuid,
  event_type text,
  claimed_at timestamp with time zone,
  constraint once_pkey PRIMARY KEY (tenant, subject),
  constraint generation_counts_from_one CHECK ((generation > 0)),
  constraint winner_is_known_with_its_type_and_time CHECK ((((event_id IS NULL) = (event_type IS NULL)) AND ((event_id IS NULL) = (claimed_at IS NULL))))
) with (fillfactor=80);
-- comment: Subjects in their current generation, and which event has claimed each.

create table postrider.past_generations (
  tenant text not null,
  subject text not null,
  generation bigint not null,
  event_id uuid not null,
  event_type text not null,
  claimed_at timestamp with time zone not null,
  ended_at timestamp with time zone not null,
  constraint past_generations_pkey PRIMARY KEY (tenant, subject, generation)
);
CREATE INDEX past_generations_by_end ON postrider.past_generations USING btree (ended_at);
-- comment: Who had claimed a subject in generations that are over.

create table postrider.ready (
  lane text collate "C" not null,
  position bigint not null generated always as identity,
  delivery_id uuid not null
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0, autovacuum_vacuum_insert_threshold=100000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=50000);
CREATE INDEX ready_by_lane ON postrider.ready USING btree (lane, "position");
-- comment: Place of deliveries that are due, in lanes.

create table postrider.removed_events (
  event_id uuid not null,
  topic text not null,
  metadata jsonb not null,
  last_announced_at timestamp with time zone not null,
  tenant text not null,
  constraint removed_events_pkey PRIMARY KEY (event_id)
);
CREATE INDEX removed_events_by_age ON postrider.removed_events USING btree (last_announced_at);
-- comment: What announcements still say of events that retention has removed.

create table postrider.scheduled (
  due_at timestamp with time zone not null,
  delivery_id uuid not null,
  lane text collate "C" not null
) with (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=20000, autovacuum_vacuum_cost_delay=0, autovacuum_vacuum_insert_scale_factor=0, autovacuum_vacuum_insert_threshold=100000, autovacuum_analyze_scale_factor=0, autovacuum_analyze_threshold=50000);
CREATE INDEX scheduled_by_due_at ON postrider.scheduled USING btree (due_at);
-- comment: Place of deliveries that are due later.

-- view postrider.announcements (
  position bigint,
  fact text,
  delivery_id uuid,
  event_id uuid,
  endpoint_id uuid,
  attempt_count integer,
  at timestamp with time zone
);
-- comment: What became of deliveries, one row each. Internal.

-- view postrider.dead_letters (
  delivery_id uuid,
  event_id uuid,
  tenant text,
  event_type text,
  endpoint_id uuid,
  destination_url text,
  attempt_count integer,
  reason text,
  error_detail text,
  last_attempted_at timestamp with time zone,
  died_at timestamp with time zone,
  created_at timestamp with time zone
);
-- comment: Deliveries that are given up. retry(delivery_id) begins a new round.

-- view postrider.delivery_lines (
  id uuid,
  tenant text,
  event_id uuid,
  event_type text,
  endpoint_id uuid,
  destination_url text,
  status text,
  attempt_count integer,
  earlier_attempts integer,
  abandoned_count integer,
  next_attempt_at timestamp with time zone,
  last_attempted_at timestamp with time zone,
  error_detail text,
  lease_owner text,
  lease_until timestamp with time zone,
  created_at timestamp with time zone
);
-- comment: Deliveries with their event's type and their lease. Internal.

-- view postrider.overview (
  pending bigint,
  failed bigint,
  delivered bigint,
  dead bigint,
  cancelled bigint,
  due bigint,
  in_flight bigint,
  scheduled bigint,
  oldest_due_age interval,
  delivered_per_minute bigint,
  failed_per_minute bigint,
  dead_per_minute bigint,
  counted_at timestamp with time zone
);
-- comment: What is where, of all tenants together, counted exactly: one row.
