-- Consumes leases with the results of their attempts. The delete decides: what it returns is what may be settled, and
-- everything else in the statement follows from that. A lease that is gone, or has another owner or token, is not
-- returned, and nothing changes for it.
--
-- There is one reading of the clock for the whole statement, so that `next_attempt_at - last_attempted_at` is exactly
-- the delay. Rows are handled in the order of their ids, as renewals are, so that the two do not deadlock; should a plan
-- ever turn that over, the loser is told of a conflict, and repeats.
--
-- A receiver that says it is gone disables its endpoint, also one that an operator has paused; of many such answers only the
-- first one is announced.
--
-- The announcement's number is taken after the delete, so after this transaction has an id of its own: readers rely on
-- that (see feed.rs).
with clock as materialized (
  select coalesce($1::timestamptz, clock_timestamp()) as at
), given as materialized (
  select distinct on (g.delivery_id, g.token) g.*
  from unnest($3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::text[], $8::int[], $9::int[], $10::bigint[],
              $11::text[], $12::text[], $13::boolean[]) with ordinality
    as g (delivery_id, token, verdict, delay, outcome, status_code, duration_ms, started_ago, response_excerpt,
          error_detail, disable_endpoint, n)
  order by g.delivery_id, g.token, g.n
), won as (
  delete from postrider.leases l
  using given g
  where l.delivery_id = g.delivery_id and l.token = g.token and l.owner = $2
  returning g.*, l.lane
), moved as (
  update postrider.deliveries d
  set status = w.verdict,
      attempt_count = d.attempt_count + 1,
      abandoned_count = 0,
      last_attempted_at = c.at,
      next_attempt_at = case when w.verdict = 'failed' then c.at + w.delay * interval '1 microsecond' end,
      error_detail = w.error_detail
  from won w, clock c
  where d.id = w.delivery_id
  returning d.id, d.event_id, d.endpoint_id, d.status, d.attempt_count, d.earlier_attempts, d.next_attempt_at,
            w.lane, w.token, w.outcome, w.status_code, w.duration_ms, w.started_ago, w.response_excerpt,
            w.error_detail, w.disable_endpoint, c.at
), attempted as (
  insert into postrider.attempts (delivery_id, number, token, outcome, status_code, started_at, duration_ms,
                                  response_excerpt, error_detail, worker_id)
  select m.id, m.earlier_attempts + m.attempt_count, m.token, m.outcome, m.status_code,
         m.at - m.started_ago * interval '1 microsecond', m.duration_ms, m.response_excerpt, m.error_detail, $2
  from moved m
), rescheduled as (
  insert into postrider.scheduled (due_at, delivery_id, lane)
  select m.next_attempt_at, m.id, m.lane from moved m where m.status = 'failed'
), buried as (
  insert into postrider.dead_letters (delivery_id, reason, died_at)
  select m.id, 'exhausted', m.at from moved m where m.status = 'dead'
), gone as materialized (
  select distinct on (m.endpoint_id) m.endpoint_id, m.id, m.event_id, m.attempt_count, m.at
  from moved m
  where m.disable_endpoint and m.endpoint_id is not null
  order by m.endpoint_id, m.id
), disabled as (
  update postrider.endpoints e
  set status = 'disabled', status_reason = 'the receiver answered that it is gone (410)'
  where e.id = any (array (select g.endpoint_id from gone g)) and e.status <> 'disabled'
  returning e.id
), announced as (
  insert into postrider.announcements (fact, delivery_id, event_id, endpoint_id, attempt_count, at)
  select a.fact, a.id, a.event_id, a.endpoint_id, a.attempt_count, a.at
  from (
    select 'delivery.' || m.status as fact, m.id, m.event_id, m.endpoint_id, m.attempt_count, m.at, 1 as rank
    from moved m
    union all
    select 'endpoint.disabled', g.id, g.event_id, g.endpoint_id, g.attempt_count, g.at, 2
    from gone g
    where g.endpoint_id in (select d.id from disabled d)
  ) a
  order by a.id, a.rank
), notified as (
  select pg_notify('postrider_announced', '')
  where exists (select from moved)
    and exists (select from postrider.listeners l where l.channel = 'announced' and l.until > statement_timestamp())
)
select g.n - 1 as index, (select count(*) from notified) as notified
from moved m
join given g on g.delivery_id = m.id and g.token = m.token
