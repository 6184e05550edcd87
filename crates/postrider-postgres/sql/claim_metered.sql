-- Takes deliveries from lanes whose meters this transaction holds (claim_meters.sql): as many as the endpoint's own limit
-- leaves free, counted over all dispatchers, and as it has tokens for. Everybody else who claims for these lanes passes
-- them by until this commits, so that what is counted here stays true; a settle meanwhile only makes room.
--
-- Lanes take turns: the first of each, then the second of each, until the limit is reached. Rows that were locked for a
-- turn that did not come are free again at the commit.
--
-- The bucket is computed from when it was last written. The tolerance is for what binary fractions lose: a token that is due
-- to the microsecond is there.
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), metered as materialized (
  select g.lane, g.position, g.n, e.rate_per_second, bucket.tokens,
         greatest(0, least($5::int - g.in_flight, e.max_in_flight - flying.count)) as free
  from unnest($6::text[], $7::int[], $8::bigint[]) with ordinality as g (lane, in_flight, position, n)
  cross join clock c
  cross join lateral (
    select e.max_in_flight, e.rate_per_second, e.rate_burst from postrider.endpoints e
    where e.lane = g.lane collate "C" and e.status = 'active' offset 0
  ) e
  cross join lateral (
    select m.tokens, m.refilled_at from postrider.meters m where m.lane = g.lane collate "C" offset 0
  ) m
  cross join lateral (
    select count(*)::int from postrider.leases l where l.is_metered and l.lane = g.lane collate "C"
  ) flying
  cross join lateral (
    select case when e.rate_per_second is not null
                then least(e.rate_burst, m.tokens + greatest(0, extract(epoch from c.at - m.refilled_at)::double precision)
                                                    * e.rate_per_second) end as tokens
  ) bucket
), allowed as materialized (
  select m.*, least(m.free, floor(m.tokens + 0.000001))::int as most from metered m
), found as materialized (
  select x.tid, x.position, a.lane, a.n
  from allowed a
  cross join lateral (
    select r.ctid as tid, r.position from postrider.ready r
    where r.lane = a.lane collate "C" and r.position >= a.position order by r.position
    limit least(a.most, $4::int) for update skip locked
  ) x
), chosen as materialized (
  select f.tid
  from (select f.tid, f.n, row_number() over (partition by f.n order by f.position) as turn from found f) f
  order by f.turn, f.n
  limit $4::int
), taken as (
  delete from postrider.ready r
  where r.ctid = any (array (select c.tid from chosen c))
  returning r.lane, r.position, r.delivery_id
), leased as (
  insert into postrider.leases (delivery_id, lane, owner, token, lease_until, is_metered)
  select t.delivery_id, t.lane, $2, gen_random_uuid(), c.at + $3::bigint * interval '1 microsecond', true
  from taken t, clock c
  returning delivery_id, token
), counted as materialized (
  select a.lane, a.position, a.rate_per_second, a.free - count(t.position) as free,
         greatest(0, a.tokens - count(t.position)) as tokens, count(t.position) as taken, max(t.position) as last
  from allowed a left join taken t on t.lane = a.lane collate "C"
  group by a.lane, a.position, a.rate_per_second, a.free, a.tokens
), spent as (
  update postrider.meters m
  set tokens = n.tokens, refilled_at = c.at
  from counted n, clock c
  where m.lane = n.lane collate "C" and n.rate_per_second is not null and n.taken > 0
), next as (
  select min((1 - n.tokens) / n.rate_per_second) as wait
  from counted n
  where n.tokens < 0.999999 and n.free > 0
    and exists (select from postrider.ready r
                where r.lane = n.lane collate "C" and r.position >= coalesce(n.last + 1, n.position))
)
select claimed.*, clock.at, ceil(next.wait * 1000000)::bigint as next_token_in
from clock
cross join next
left join (
  select l.delivery_id, l.token, t.lane, t.position, d.tenant, d.event_id, e.type, e.payload, d.destination_url,
         d.attempt_count, d.earlier_attempts, d.abandoned_count, d.endpoint_id
  from leased l
  join taken t on t.delivery_id = l.delivery_id
  join postrider.deliveries d on d.id = l.delivery_id
  join postrider.events e on e.id = d.event_id
) claimed on true
order by claimed.position
