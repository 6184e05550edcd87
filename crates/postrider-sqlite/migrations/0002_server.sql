-- What a server keeps: once-only claims, API keys, endpoints that change and go, and whose things everything is.
--
-- SQLite cannot alter a constraint, so a table that gets one is built anew beside the old one and takes its name. In
-- this order, and not the other way round, what an application's own tables say of ours stays as it is.

-- `removed` is the end of an endpoint: its deliveries still name it, so the row stays until the last of them is gone.
-- `revision` counts what operators changed, and an update names the one that it is based on. `failing_since` is the
-- first failure that no success has followed. `sweep_from` is how far the search for deliveries that a removed endpoint
-- has left behind has come: it walks from the newest to the oldest, and is over when this is null.
create table postrider_endpoints_0002 (
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

insert into postrider_endpoints_0002
  (id, tenant, url, event_types, status, status_reason, revision, settings, created_at)
select id, tenant, url, event_types, status, status_reason, 1, settings, created_at
from postrider_endpoints;

drop table postrider_endpoints;
alter table postrider_endpoints_0002 rename to postrider_endpoints;

create index postrider_endpoints_by_tenant on postrider_endpoints (tenant, id);
create index postrider_endpoints_removed on postrider_endpoints (id) where status = 'removed';

-- How much of its rate limit an endpoint has used: the instant at which its bucket of tokens is full again. Every token
-- that is taken moves it. There is no row for an endpoint without a limit, or whose bucket was never touched.
create table postrider_buckets (
  endpoint_id blob not null primary key,
  full_at     integer not null
) strict, without rowid;

-- The tenant is copied like the topic, because an announcement may outlive its event.
create table postrider_announcements_0002 (
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
  constraint announced_fact_is_known check (fact in (
    'delivery.delivered', 'delivery.failed', 'delivery.dead', 'delivery.cancelled', 'endpoint.disabled'))
) strict;

-- Whose an announcement is can only be known from its delivery. One that has outlived it is left behind, rather than be
-- shown to somebody whom it does not concern.
insert into postrider_announcements_0002
  (position, tenant, topic, fact, delivery_id, event_id, endpoint_id, attempt_count, metadata, at)
select a.position, d.tenant, a.topic, a.fact, a.delivery_id, a.event_id, a.endpoint_id, a.attempt_count, a.metadata, a.at
from postrider_announcements a
join postrider_deliveries d on d.id = a.delivery_id;

-- Positions go on where they were, also when the newest announcements are not there any more.
delete from sqlite_sequence where name = 'postrider_announcements_0002';
insert into sqlite_sequence (name, seq)
select 'postrider_announcements_0002', seq from sqlite_sequence where name = 'postrider_announcements';

drop table postrider_announcements;
alter table postrider_announcements_0002 rename to postrider_announcements;

-- `tenant` is null for what belongs to all, and for what was done before tenants were noted.
create table postrider_audit_0002 (
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

insert into postrider_audit_0002 (id, at, operator, action, subject, reason)
select id, at, operator, action, subject, reason
from postrider_audit;

drop table postrider_audit;
alter table postrider_audit_0002 rename to postrider_audit;

create index postrider_audit_by_tenant on postrider_audit (tenant, id);

-- One row per generation of a subject; the newest is the current one. It is unclaimed until an event claims it, in the
-- transaction that writes the event. The primary key is the promise that a generation has one winner.
create table postrider_once (
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

create index postrider_once_ended on postrider_once (ended_at) where ended_at is not null;

-- Keys are recognised by their digest, from which nobody gets the key. `tenant` is null for a key to all of them.
create table postrider_api_keys (
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

-- A tenant's events, newest first.
create index postrider_events_by_tenant on postrider_events (tenant, id);
