-- Takes deliveries from several lanes in turn, at a cost that depends on what is taken and on how many lanes are looked
-- at, and not on how much waits.
--
-- `visited` hops from lane to lane by the index (lane, position): one lookup finds the next lane whatever the length of
-- the lanes in between. It begins after the caller's cursor, goes round once, and stops when it has seen $9 lanes
-- with a free slot ($10 lanes in all). A lane without a free slot, or of an endpoint that is not active, is passed
-- over without touching a row of it.
--
-- What was taken stays in the index until vacuum has been there, and each claim would wade through it again. $11 and $12 say
-- from which position on to look in some lanes (see floors.rs), in the order of the lanes; `floor` is the number of the
-- next such lane. A hop then has these cases, in this order: a lane before the next such lane; that lane, from its floor;
-- that lane again as a stepping stone without a position, when nothing is left in it; the rest; and once, from the end,
-- the stepping stone at the beginning.
--
-- A lane whose endpoint has a limit of its own is visited and has its share, but nothing is taken from it here: whether it may
-- have it is decided by what all dispatchers have in flight, under a lock (claim_metered.sql). With $13 false, such lanes
-- are passed over.
--
-- `shared` takes an equal share from each lane, `filled` what is left of the limit from whichever lanes have more, those
-- with the fewest in flight first: by the order of lanes, one of them would get most of it again and again. Both
-- lock with SKIP LOCKED, so that concurrent claims take different rows and never wait; both are materialised, since a
-- lateral subquery with a lock that is run twice would lock other rows. The rows are then deleted by their address.
--
-- The plan of this text is meant for tables of up to $15 and $16 bytes (see plans.rs). If they are larger, nothing is visited
-- or taken, and the last row says how large they are.
--
-- The tokens of the leases are the caller's ($14), as many as there are slots: drawing random numbers here costs as much as
-- writing a row. What was taken comes in no order, since sorting would copy each payload, and the last row says where
-- the claim went. Nothing comes back from writing the leases: `numbered` has it all, and joining it again would cost more.
with recursive sized as materialized (
  select pg_relation_size('postrider.deliveries') as deliveries, pg_relation_size('postrider.events') as events
), visited (lane, position, visits, eligible, wrapped, floor, in_flight, free, is_metered) as (
  select coalesce($8::text, '') collate "C", null::bigint, 0, 0, $8::text is null,
         1 + (select count(*) from unnest($11::text[]) as f (lane) where f.lane collate "C" <= coalesce($8::text, ''))::int,
         0, 0, false
  from sized where sized.deliveries <= $15::bigint and sized.events <= $16::bigint
  union all
  select next.lane, next.position, v.visits + 1, v.eligible + (slots.free > 0)::int, next.wrapped, next.floor,
         busy.in_flight, slots.free, coalesce(endpoint.is_metered, false)
  from visited v
  cross join lateral (
    select ($11::text[])[v.floor] collate "C" as lane, ($12::bigint[])[v.floor] as position offset 0
  ) known
  cross join lateral (
    select step.lane, step.position, step.wrapped, step.floor
    from (
      (select r.lane, r.position, v.wrapped, v.floor from postrider.ready r
       where r.lane > v.lane and r.lane < known.lane order by r.lane, r.position limit 1)
      union all
      (select r.lane, r.position, v.wrapped, v.floor + 1 from postrider.ready r
       where r.lane = known.lane and r.position >= known.position order by r.lane, r.position limit 1)
      union all
      (select known.lane, null, v.wrapped, v.floor + 1 where known.lane is not null)
      union all
      (select r.lane, r.position, v.wrapped, v.floor from postrider.ready r
       where known.lane is null and r.lane > v.lane order by r.lane, r.position limit 1)
      union all
      (select '', null, true, 1 where not v.wrapped)
      limit 1
    ) step
    where not step.wrapped or $8::text is null or step.lane <= $8::text
  ) next
  left join lateral (
    select e.status, e.max_in_flight is not null or e.rate_per_second is not null as is_metered
    from postrider.endpoints e where e.lane = next.lane limit 1
  ) endpoint on true
  cross join lateral (
    select coalesce(($7::int[])[array_position($6::text[], next.lane::text)], 0) as in_flight
  ) busy
  cross join lateral (
    select case when next.position is not null and coalesce(endpoint.status, 'active') = 'active'
                  and ($13::boolean or endpoint.is_metered is not true)
                then greatest(0, $5::int - busy.in_flight)
                else 0 end as free
  ) slots
  where v.visits < $10::int and v.eligible < $9::int
), lanes as materialized (
  select v.lane, v.position, v.visits, v.in_flight, v.free, v.is_metered,
         greatest(1, $4::int / (count(*) over ())::int) as share
  from visited v where v.free > 0
), reserved as materialized (
  select array_agg(l.lane order by l.visits) as lanes, array_agg(l.position order by l.visits) as positions,
         coalesce(sum(least(l.share, l.free)), 0)::int as slots
  from lanes l where l.is_metered
), shared as materialized (
  select x.tid, x.position, l.lane, l.visits
  from lanes l
  cross join lateral (
    select r.ctid as tid, r.position from postrider.ready r
    where r.lane = l.lane and r.position >= l.position order by r.position
    limit least(l.share, l.free) for update skip locked
  ) x
  where not l.is_metered
  limit $4::int
), filled as materialized (
  select x.tid
  from (
    select l.lane, l.visits, l.free, count(s.tid) as taken, max(s.position) as last
    from lanes l join shared s on s.visits = l.visits
    group by l.lane, l.visits, l.in_flight, l.free, l.share
    having count(s.tid) = l.share and l.free > l.share
    order by l.in_flight, l.visits
  ) l
  cross join lateral (
    select r.ctid as tid from postrider.ready r
    where r.lane = l.lane and r.position > l.last order by r.position
    limit least(l.free - l.taken, $4::int) for update skip locked
  ) x
  limit greatest(0, $4::int - (select count(*) from shared) - (select r.slots from reserved r))
), taken as (
  delete from postrider.ready r
  where r.ctid = any (array (select s.tid from shared s union all select f.tid from filled f))
  returning r.lane, r.position, r.delivery_id
), numbered as materialized (
  select t.delivery_id, ($14::uuid[])[row_number() over ()] as token, t.lane, t.position from taken t
), term as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) + $3::bigint * interval '1 microsecond' as lease_until
), leased as (
  insert into postrider.leases (delivery_id, lane, owner, token, lease_until)
  select n.delivery_id, n.lane, $2, n.token, term.lease_until from numbered n cross join term
), ended as (
  select v.lane, v.visits < $10::int and v.eligible < $9::int as complete
  from visited v order by v.visits desc limit 1
)
select n.delivery_id, n.token, n.lane, n.position, d.tenant, d.event_id, e.type, e.payload, d.destination_url,
       d.attempt_count, d.earlier_attempts, d.abandoned_count, d.endpoint_id,
       null::timestamptz as at, null::boolean as complete, null::text as last_lane, null::text as first_lane,
       null::text[] as metered_lanes, null::bigint[] as metered_positions, null::int as reserved,
       null::bigint as deliveries_bytes, null::bigint as events_bytes
from numbered n
join postrider.deliveries d on d.id = n.delivery_id
join postrider.events e on e.id = d.event_id
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null,
       coalesce($1::timestamptz, clock_timestamp()), ended.complete, ended.lane,
       (select v.lane from visited v where v.position is not null order by v.visits limit 1),
       reserved.lanes, reserved.positions, reserved.slots, sized.deliveries, sized.events
from sized
cross join reserved
left join ended on true
