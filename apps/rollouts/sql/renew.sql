update rollouts.task_runs
set lease_until = clock_timestamp() + $3 * interval '1 millisecond'
where id = $1 and token = $2 and lease_until > clock_timestamp()
