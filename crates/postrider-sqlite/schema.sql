-- What the migrations come to. Written by a test: POSTRIDER_BLESS=1 cargo test -p postrider-sqlite

CREATE TABLE "postrider_announcements" (
  position      integer primary key autoincrement,
  tenant        text not null,
  topic         text not null,
  fact          text not null,
  delivery_id   blob not null,
  event_id      blob not null,
  endpoint_id   blob,
  attempt_count integer not null,
  metadata      text not null,
  at            integer not null,
  constraint announced_fact_is_known check (fact = 'delivery.delivered' or fact = 'delivery.failed' or fact = 'delivery.dead' or fact = 'delivery.cancelled'
      or fact = 'endpoint.disabled')
) strict;

CREATE TABLE postrider_api_keys (
  id         blob not null primary key,
  name       text not null,
  tenant     text,
  scope      text not null,
  digest     blob not null,
  created_at integer not null,
  revoked_at integer,
  constraint key_id_is_a_uuid check (length(id) = 16),
  constraint key_scope_is_known check (scope in ('read', 'write', 'admin')),
  constraint key_digest_is_a_sha256 check (length(digest) = 32),
  constraint key_digest_is_unique unique (digest)
) strict, without rowid;

CREATE TABLE postrider_attempts (
  delivery_id      blob not null,
  number           integer not null,
  token            blob not null,
  started_at       integer not null,
  duration_ms      integer not null,
  outcome          text not null,
  status_code      integer,
  response_excerpt text,
  error_detail     text,
  worker_id        text not null,
  primary key (delivery_id, number),
  constraint attempt_number_begins_at_one check (number >= 1),
  constraint attempt_outcome_is_known
    check (outcome = 'response' or outcome = 'timeout' or outcome = 'connect' or outcome = 'tls' or outcome = 'dns'
      or outcome = 'blocked' or outcome = 'protocol'),
  constraint only_a_response_has_a_status_code check (status_code is null or outcome = 'response')
) strict, without rowid;

CREATE TABLE "postrider_audit" (
  id       blob not null primary key,
  at       integer not null,
  tenant   text,
  operator text not null,
  action   text not null,
  subject  text not null,
  reason   text,
  constraint audited_action_is_known check (action in (
    'delivery.retry', 'delivery.cancel', 'endpoint.create', 'endpoint.update', 'endpoint.rotate_secret',
    'endpoint.reseal', 'endpoint.pause', 'endpoint.resume', 'endpoint.disable', 'endpoint.remove', 'once.reset',
    'key.create', 'key.revoke'))
) strict, without rowid;

CREATE INDEX postrider_audit_by_tenant on postrider_audit (tenant, id);

CREATE TABLE postrider_buckets (
  endpoint_id blob not null primary key,
  full_at     integer not null
) strict, without rowid;

CREATE TABLE postrider_dead_letters (
  delivery_id blob not null primary key,
  reason      text not null,
  died_at     integer not null,
  constraint death_has_a_known_reason check (reason in ('exhausted', 'abandoned'))
) strict, without rowid;

CREATE TABLE postrider_deliveries (
  id                blob not null primary key,
  event_id          blob not null,
  tenant            text not null,
  endpoint_id       blob,
  lane              text not null,
  destination_url   text not null,
  status            text not null,
  attempt_count     integer not null default 0,
  earlier_attempts  integer not null default 0,
  abandoned_count   integer not null default 0,
  next_attempt_at   integer,
  last_attempted_at integer,
  error_detail      text,
  created_at        integer not null,
  constraint delivery_id_is_a_uuid check (length(id) = 16),
  constraint delivery_status_is_known check (status = 'delivered' or status = 'pending' or status = 'failed' or status = 'dead' or status = 'cancelled'),
  constraint delivery_counts_are_not_negative
    check (attempt_count >= 0 and earlier_attempts >= 0 and abandoned_count >= 0),
  constraint settled_delivery_has_no_next_attempt
    check ((status = 'delivered' or status = 'dead' or status = 'cancelled') = (next_attempt_at is null)),
  constraint failed_or_delivered_was_attempted
    check (status not in ('failed', 'delivered') or (attempt_count > 0 and last_attempted_at is not null)),
  constraint pending_has_no_attempt_in_this_round check (status <> 'pending' or attempt_count = 0)
) strict, without rowid;

CREATE INDEX postrider_deliveries_by_endpoint on postrider_deliveries (endpoint_id, id) where endpoint_id is not null;

CREATE INDEX postrider_deliveries_by_event on postrider_deliveries (event_id);

CREATE INDEX postrider_deliveries_by_tenant on postrider_deliveries (tenant, id);

CREATE INDEX postrider_deliveries_cancelled on postrider_deliveries (id) where status = 'cancelled';

CREATE TABLE "postrider_endpoints" (
  id            blob not null primary key,
  tenant        text not null,
  url           text not null,
  event_types   text not null,
  status        text not null,
  status_reason text,
  revision      integer not null,
  failing_since integer,
  sweep_from    blob,
  settings      text not null,
  created_at    integer not null,
  constraint endpoint_id_is_a_uuid check (length(id) = 16),
  constraint endpoint_event_types_are_a_json_array check (json_type(event_types) = 'array'),
  constraint endpoint_settings_are_json check (json_valid(settings)),
  constraint endpoint_status_is_known check (status in ('active', 'paused', 'disabled', 'removed')),
  constraint active_endpoint_has_no_reason check (status <> 'active' or status_reason is null),
  constraint removed_endpoint_keeps_no_settings check (status <> 'removed' or settings = '{}'),
  constraint only_a_removed_endpoint_is_swept check (status = 'removed' or sweep_from is null),
  constraint endpoint_revision_begins_at_one check (revision >= 1)
) strict, without rowid;

CREATE INDEX postrider_endpoints_by_tenant on postrider_endpoints (tenant, id);

CREATE INDEX postrider_endpoints_removed on postrider_endpoints (id) where status = 'removed';

CREATE TABLE postrider_events (
  id         blob not null primary key,
  tenant     text not null,
  event_type text not null,
  payload    blob not null,
  metadata   text not null,
  topic      text not null,
  created_at integer not null,
  constraint event_id_is_a_uuid check (length(id) = 16),
  constraint event_metadata_is_json check (json_valid(metadata))
) strict;

CREATE INDEX postrider_events_by_tenant on postrider_events (tenant, id);

CREATE TABLE postrider_idempotency_keys (
  tenant      text not null,
  key         text not null,
  fingerprint blob not null,
  event_id    blob not null,
  primary key (tenant, key),
  constraint fingerprint_is_a_sha256 check (length(fingerprint) = 32)
) strict, without rowid;

CREATE TABLE postrider_leases (
  delivery_id blob not null primary key,
  owner       text not null,
  token       blob not null,
  lease_until integer not null,
  constraint lease_has_an_owner check (length(owner) > 0),
  constraint lease_token_is_a_uuid check (length(token) = 16)
) strict, without rowid;

CREATE TABLE postrider_migrations (
  version    integer not null primary key,
  name       text not null,
  sha256     text not null,
  applied_at integer not null
) strict;

CREATE TABLE postrider_once (
  tenant     text not null,
  subject    text not null,
  generation integer not null,
  event_id   blob,
  event_type text,
  claimed_at integer,
  ended_at   integer,
  primary key (tenant, subject, generation),
  constraint generation_begins_at_one check (generation >= 1),
  constraint winner_has_an_event_a_type_and_a_time
    check ((event_id is null) = (event_type is null) and (event_id is null) = (claimed_at is null)),
  constraint winner_is_a_uuid check (event_id is null or length(event_id) = 16)
) strict, without rowid;

CREATE INDEX postrider_once_ended on postrider_once (ended_at) where ended_at is not null;

CREATE TABLE postrider_ready (
  lane        text not null,
  position    integer not null,
  delivery_id blob not null,
  primary key (lane, position)
) strict, without rowid;

CREATE TABLE postrider_scheduled (
  due_at      integer not null,
  delivery_id blob not null,
  primary key (due_at, delivery_id)
) strict, without rowid;
