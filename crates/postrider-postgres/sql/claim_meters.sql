-- Takes hold of the meters of lanes whose endpoints have limits. One that another claim holds is passed by: two claims never
-- wait for each other. A statement of its own, so that the next one's snapshot sees all that earlier holders took. If the
-- connection goes dead before that, the server lets go of them by itself.
with missing as (
  insert into postrider.meters (lane, tokens, refilled_at)
  select g.lane, 0, coalesce($1::timestamptz, clock_timestamp())
  from unnest($2::text[]) as g (lane)
  where not exists (select from postrider.meters m where m.lane = g.lane collate "C")
  on conflict (lane) do nothing
)
select m.lane, set_config('idle_in_transaction_session_timeout', '15s', true)
from postrider.meters m
where m.lane = any ($2::text[] collate "C")
for update skip locked
