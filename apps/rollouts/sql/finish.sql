-- Ends a run that is still held. A lease that has lapsed ends nothing, also if nobody took the run over yet: by then the
-- plan may be in its next generation, of which a straggler knows nothing.
update rollouts.task_runs
set status = $3, token = null, lease_until = null
where id = $1 and token = $2 and lease_until > clock_timestamp()
