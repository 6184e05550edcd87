-- What a server needs beside the places: once-only claims, API keys, limits of an endpoint that hold for all dispatchers
-- together, endpoints that are changed and removed, and whose thing everything was.

-- --- Once-only claims -----------------------------------------------------------------------------------------------

-- A subject in its current generation, with the event that has claimed it, if one has. The primary key is what racers
-- meet at: the insert or update that comes first holds the row until its transaction ends, and whoever comes later waits
-- for that, and then finds a winner or takes the place of one that was rolled back.
create table postrider.once (
  tenant     text   not null,
  subject    text   not null,
  generation bigint not null,
  event_id   uuid,
  event_type text,
  claimed_at timestamptz,
  primary key (tenant, subject),
  constraint generation_counts_from_one check (generation > 0),
  constraint winner_is_known_with_its_type_and_time
    check ((event_id is null) = (event_type is null) and (event_id is null) = (claimed_at is null))
) with (fillfactor = 80);

-- Who had won in generations that are over. Retention removes them; the current generation of a subject it never touches.
create table postrider.past_generations (
  tenant     text        not null,
  subject    text        not null,
  generation bigint      not null,
  event_id   uuid        not null,
  event_type text        not null,
  claimed_at timestamptz not null,
  ended_at   timestamptz not null,
  primary key (tenant, subject, generation)
);
create index past_generations_by_end on postrider.past_generations (ended_at);

-- --- API keys -------------------------------------------------------------------------------------------------------

-- Keys are recognised by their digest; the key itself is not here. A tenant of null means all of them. Of several keys
-- that each want to be the first one, the unique index lets one in.
create table postrider.api_keys (
  id         uuid        primary key,
  name       text        not null,
  tenant     text,
  scope      text        not null,
  digest     bytea       not null,
  was_first  boolean     not null,
  created_at timestamptz not null,
  revoked_at timestamptz,
  constraint scope_is_known check (scope in ('read', 'write', 'admin')),
  constraint digest_has_32_bytes check (length(digest) = 32)
);
create unique index api_keys_by_digest on postrider.api_keys (digest);
create unique index api_keys_first on postrider.api_keys (was_first) where was_first;

-- --- Endpoints ------------------------------------------------------------------------------------------------------

-- `rate_per_second` and `rate_burst` repeat what the settings say, as `max_in_flight` does, for the claim. An endpoint that
-- was removed stays while deliveries of it are kept; `is_cleared` says that nothing of it is scheduled any more.
alter table postrider.endpoints
  add column revision        bigint not null default 1,
  add column failing_since   timestamptz,
  add column rate_per_second double precision,
  add column rate_burst      double precision,
  add column removed_at      timestamptz,
  add column is_cleared      boolean not null default false,
  drop constraint status_is_known,
  add constraint status_is_known check (status in ('active', 'paused', 'disabled', 'removed')),
  add constraint revision_counts_from_one check (revision > 0),
  add constraint rate_has_a_burst check ((rate_per_second is null) = (rate_burst is null)),
  add constraint rate_is_positive_and_its_burst_at_least_one check (rate_per_second > 0 and rate_burst >= 1),
  add constraint removed_has_a_time check ((status = 'removed') = (removed_at is not null)),
  add constraint removed_has_no_settings check (status <> 'removed' or settings = '{}'),
  add constraint only_removed_is_cleared check (status = 'removed' or not is_cleared),
  set (fillfactor = 70);
create index endpoints_removed on postrider.endpoints (id) where status = 'removed';

-- The bucket of tokens of an endpoint with a limit of its own. Whoever claims for it holds this row, so that what it counts
-- stays true until it commits; those who come meanwhile pass the endpoint by.
create table postrider.meters (
  lane        text collate "C" primary key,
  tokens      double precision not null,
  refilled_at timestamptz      not null,
  constraint tokens_are_not_negative check (tokens >= 0)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

insert into postrider.meters (lane, tokens, refilled_at)
select e.lane, 0, clock_timestamp() from postrider.endpoints e where e.max_in_flight is not null;

-- What is in flight to endpoints with a limit is counted at every claim for them. The index covers only those leases, so
-- that all others cost nothing more than before.
alter table postrider.leases add column is_metered boolean not null default false;
create index leases_metered on postrider.leases (lane) where is_metered;

update postrider.leases l set is_metered = true
from postrider.endpoints e where e.lane = l.lane and e.max_in_flight is not null;

-- --- Whose it is ----------------------------------------------------------------------------------------------------

-- Rows from before are nobody's: their events are gone, and no tenant has an empty name.
alter table postrider.removed_events add column tenant text not null default '';
alter table postrider.removed_events alter column tenant drop default;

-- The subject is an id's UUID as the action says (delivery, endpoint or key), or the subject of a once-only claim. A tenant
-- of null means all of them.
alter table postrider.audit
  add column tenant text,
  alter column subject type text using subject::text,
  drop constraint action_is_known,
  add constraint action_is_known check (action in
    ('delivery.retry', 'delivery.cancel', 'endpoint.create', 'endpoint.update', 'endpoint.rotate_secret',
     'endpoint.reseal', 'endpoint.pause', 'endpoint.resume', 'endpoint.disable', 'endpoint.remove', 'once.reset',
     'key.create', 'key.revoke'));
create index audit_by_tenant on postrider.audit (tenant, id);

update postrider.audit a set tenant = d.tenant
from postrider.deliveries d where a.action like 'delivery.%' and d.id = a.subject::uuid;
update postrider.audit a set tenant = e.tenant
from postrider.endpoints e where a.action like 'endpoint.%' and e.id = a.subject::uuid;

-- --- Looking --------------------------------------------------------------------------------------------------------

-- Whoever has the key of one tenant sees the events of that tenant alone, which must not take a walk along all others'.
create index events_by_tenant on postrider.events (tenant, id);

-- Deliveries that were cancelled: few, and found here rather than among all others. Dead letters are found likewise.
create table postrider.cancelled (
  delivery_id uuid primary key
);
insert into postrider.cancelled (delivery_id) select d.id from postrider.deliveries d where d.status = 'cancelled';
