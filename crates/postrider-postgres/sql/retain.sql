-- Removes one stretch of old events, walking along their ids. Those that must stay are passed over, and the next call
-- goes on after the last one that was looked at, so that they are not read again and again in one run.
--
-- Deliveries are locked before their status counts, since an operator may be retrying a cancelled one: a row that somebody
-- holds is skipped, and its event then has fewer locked deliveries than deliveries, and stays. Ids are of the real
-- clock, so that a frozen one cannot bound them; then only `created_at` decides.
--
-- What the announcements of a removed event need of it is kept aside while they may be young. When that was is known for
-- attempts; a cancellation leaves no time on its delivery, so it counts as of now.
--
-- Generations of subjects that are over go as well, and removed endpoints of which no delivery is left.
with cutoff as materialized (
  select coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 microsecond' as at
), old as materialized (
  select e.id from postrider.events e
  where e.id > coalesce($3::uuid, '00000000-0000-0000-0000-000000000000')
    and e.id < case when $1::timestamptz is null
                    then postrider.first_id_at(statement_timestamp() - $2::bigint * interval '1 microsecond')
                    else 'ffffffff-ffff-ffff-ffff-ffffffffffff' end
    and e.created_at < (select c.at from cutoff c)
  order by e.id
  limit $4::int
), locked as materialized (
  select d.id, d.event_id, d.status, d.last_attempted_at
  from old o join postrider.deliveries d on d.event_id = o.id
  order by d.id
  for update of d skip locked
), removable as materialized (
  select o.id from old o
  where (select count(*) from postrider.deliveries d where d.event_id = o.id)
      = (select count(*) from locked l where l.event_id = o.id and l.status in ('delivered', 'cancelled'))
), doomed as materialized (
  select l.id from locked l join removable r on r.id = l.event_id
), unattempted as (
  delete from postrider.attempts a using doomed d where a.delivery_id = d.id
), undelivered as (
  delete from postrider.deliveries x using doomed d where x.id = d.id
), unlisted as (
  delete from postrider.cancelled x using doomed d where x.delivery_id = d.id
), removed as (
  delete from postrider.events e using removable r where e.id = r.id
  returning e.id, e.tenant, e.topic, e.metadata
), remembered as (
  insert into postrider.removed_events (event_id, tenant, topic, metadata, last_announced_at)
  select r.id, r.tenant, r.topic, r.metadata, last.at
  from removed r
  join (
    select l.event_id,
           max(case when l.status = 'cancelled' then coalesce($1::timestamptz, statement_timestamp())
                    else l.last_attempted_at end) as at
    from locked l group by l.event_id
  ) last on last.event_id = r.id
  where last.at >= (select c.at from cutoff c)
), forgotten as (
  delete from postrider.removed_events
  where event_id = any (array (
    select x.event_id from postrider.removed_events x
    where x.last_announced_at < (select c.at from cutoff c)
    order by x.last_announced_at limit $4::bigint * 10))
), unannounced as (
  delete from postrider.announced
  where position = any (array (
    select a.position
    from (select a.position, a.at from postrider.announced a order by a.position limit $4::bigint * 10) a
    where a.at < (select c.at from cutoff c)))
), past as (
  delete from postrider.past_generations
  where ctid = any (array (
    select g.ctid from postrider.past_generations g
    where g.ended_at < (select c.at from cutoff c)
    order by g.ended_at limit $4::bigint * 10 for update skip locked))
), endpoints_done as (
  delete from postrider.endpoints
  where id = any (array (
    select e.id from postrider.endpoints e
    where e.status = 'removed' and e.removed_at < (select c.at from cutoff c)
      and not exists (select from postrider.deliveries d where d.endpoint_id = e.id)
    order by e.id limit $4::int for update skip locked))
)
select (select count(*) from old) as looked_at,
       (select o.id from old o order by o.id desc limit 1) as last,
       (select count(*) from removable) as events,
       (select count(*) from doomed) as deliveries,
       exists (select from postrider.endpoints e where e.status = 'removed') as any_removed
