-- Consumes leases with the results of their attempts. The delete decides: what it returns is what may be settled, and
-- everything else in the statement follows from that. A lease that is gone, or has another owner or token, is not
-- returned, and nothing changes for it.
--
-- The leases are looked up by their keys, and matched with the results by a full join, which is always made by hashing: a
-- plain join may have been planned while `leases` happened to be empty, and would then compare each with each. No result
-- comes twice, and they come in the order of their deliveries, whose rows are then found and written page by page: the
-- caller sees to that. `n` is their number in the list as it was given.
--
-- Nearly all attempts end with a response that makes the delivery delivered, and nothing more is to be said of them. What
-- there is to say of the others ($10 and after) comes apart, by their `n`, so that most rows are not made wider by it. It is
-- joined in the same way.
--
-- What is kept for several readers is written out and read again row by row. So the join is a subquery, kept apart by
-- OFFSET 0, and `moved`, which cannot be one, begins with what every reader wants.
--
-- There is one reading of the clock for the whole statement, so that `next_attempt_at - last_attempted_at` is exactly
-- the delay. Leases are deleted before anything else is looked at, and renewals pass over what is locked. Two settles meet
-- in a lease only when one is repeated while the first is at work; should their plans make them wait for each other, the
-- caller repeats the one that is ended.
--
-- An endpoint shows since when it fails, and is disabled when that was long enough ago, or when its receiver says that it is
-- gone; also one that an operator has paused. Of several results for one endpoint the last in the list decides. Only
-- endpoints that fail or have failed are judged, so that a healthy one costs a lookup, and only those for which something
-- changes are locked, in the order of their ids, so that two settles never deadlock. What is decided then is decided by
-- the locked row, and announced once, with the first delivery that was told so.
--
-- What becomes of the deliveries is announced in a row for each fact, of at most a thousand deliveries. The row's position
-- is taken after the delete, so after this transaction has an id of its own: readers rely on that (see feed.rs).
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), won as (
  delete from postrider.leases l
  where l.delivery_id = any ($3::uuid[]) and l.owner = $2
    and ((l.delivery_id, l.token) in (select * from unnest($3::uuid[], $4::uuid[]))) is true
  returning l.delivery_id, l.token, l.lane
), moved as (
  update postrider.deliveries d
  set status = coalesce(g.verdict, 'delivered'),
      attempt_count = d.attempt_count + 1,
      abandoned_count = 0,
      last_attempted_at = c.at,
      next_attempt_at = case when g.verdict = 'failed' then c.at + g.delay * interval '1 microsecond' end,
      error_detail = g.error_detail
  from (
    select g.*, w.lane, o.verdict, o.delay, o.outcome, o.error_detail, o.disable_endpoint, o.disable_after
    from won w
    full join unnest($3::uuid[], $4::uuid[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::text[])
      as g (delivery_id, token, n, status_code, duration_ms, started_ago, response_excerpt)
      on g.delivery_id = w.delivery_id and g.token = w.token
    full join unnest($10::int[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::boolean[], $16::bigint[])
      as o (n, verdict, delay, outcome, error_detail, disable_endpoint, disable_after)
      on o.n = g.n
    where (w.lane is null) is false
    offset 0
  ) g
  cross join clock c
  where d.id = g.delivery_id
  returning d.id, d.event_id, c.at, g.n, d.attempt_count, d.earlier_attempts, d.status, d.endpoint_id,
            g.token, g.status_code, g.duration_ms, g.started_ago, g.response_excerpt, g.verdict, g.lane,
            d.next_attempt_at, g.outcome, g.error_detail, g.disable_endpoint, g.disable_after
), attempted as (
  insert into postrider.attempts (delivery_id, number, token, outcome, status_code, started_at, duration_ms,
                                  response_excerpt, error_detail, worker_id)
  select m.id, m.earlier_attempts + m.attempt_count, m.token, coalesce(m.outcome, 'response'), m.status_code,
         m.at - m.started_ago * interval '1 microsecond', m.duration_ms, m.response_excerpt, m.error_detail, $2
  from moved m
), rescheduled as (
  insert into postrider.scheduled (due_at, delivery_id, lane)
  select m.next_attempt_at, m.id, m.lane from moved m where m.status = 'failed'
), buried as (
  insert into postrider.dead (delivery_id, reason, died_at)
  select m.id, 'exhausted', m.at from moved m where m.status = 'dead'
), touched as (
  select m.endpoint_id, bool_or(m.verdict is not null) as is_reported
  from moved m where m.endpoint_id is not null group by m.endpoint_id
), judged as materialized (
  select distinct on (m.endpoint_id) m.endpoint_id, m.at,
         m.status <> 'delivered' as is_failing, m.disable_after * interval '1 microsecond' as disable_after,
         bool_or(m.status = 'delivered') over of_endpoint as has_succeeded,
         bool_or(coalesce(m.disable_endpoint, false)) over of_endpoint as is_gone,
         first_value(m.id) over (
           partition by m.endpoint_id order by m.disable_endpoint desc nulls last, m.n
         ) as told_by
  from moved m
  where m.endpoint_id = any (array (
    select t.endpoint_id
    from touched t
    where t.is_reported
       or exists (select from postrider.endpoints e where e.id = t.endpoint_id and e.failing_since is not null offset 0)))
  window of_endpoint as (partition by m.endpoint_id)
  order by m.endpoint_id, m.n desc
), locked as materialized (
  select e.id, e.status, e.failing_since from postrider.endpoints e
  where e.id = any (array (
    select j.endpoint_id
    from judged j
    cross join lateral (
      select e.status, e.failing_since from postrider.endpoints e where e.id = j.endpoint_id offset 0
    ) e
    where e.status <> 'removed'
      and (j.is_failing <> (e.failing_since is not null)
           or (j.is_failing and j.has_succeeded)
           or (e.status <> 'disabled'
               and (j.is_gone or (j.is_failing and j.at - coalesce(e.failing_since, j.at) >= j.disable_after))))))
  order by e.id
  for update
), decided as materialized (
  select l.id, since.at as failing_since,
         l.status <> 'disabled' and (j.is_gone or coalesce(j.at - since.at >= j.disable_after, false)) as is_disabled,
         j.is_gone, j.told_by
  from locked l
  join judged j on j.endpoint_id = l.id
  cross join lateral (
    select case when not j.is_failing then null
                when j.has_succeeded then j.at
                else coalesce(l.failing_since, j.at) end as at
  ) since
  where l.status <> 'removed'
), cared as (
  update postrider.endpoints e
  set failing_since = d.failing_since,
      status = case when d.is_disabled then 'disabled' else e.status end,
      status_reason = case when not d.is_disabled then e.status_reason
                           when d.is_gone then 'the receiver answered that it is gone (410)'
                           else format('every attempt has failed since %s',
                                       to_char(d.failing_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) end
  from decided d
  where e.id = d.id
), announced as (
  insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
  select a.fact, a.count, a.at, a.delivery_ids, a.event_ids, a.endpoint_ids, a.attempt_counts
  from (
    select 'delivery.' || m.status as fact, count(*) as count, m.at, array_agg(m.id) as delivery_ids,
           array_agg(m.event_id) as event_ids, array_agg(m.endpoint_id) as endpoint_ids,
           array_agg(m.attempt_count) as attempt_counts, 1 as rank
    from moved m
    group by m.status, m.at, m.n / 1000
    union all
    select 'endpoint.disabled', 1, m.at, array[m.id], array[m.event_id], array[m.endpoint_id], array[m.attempt_count], 2
    from decided d
    join moved m on m.id = d.told_by
    where d.is_disabled
  ) a
  order by a.rank
), notified as (
  select pg_notify('postrider_announced', '')
  where exists (select from moved)
    and exists (select from postrider.listeners l where l.channel = 'announced' and l.until > statement_timestamp())
)
select m.n as index, (select count(*) from notified) as notified
from moved m
