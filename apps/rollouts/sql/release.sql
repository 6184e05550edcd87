-- A replica that stops gives back what it has.
update rollouts.task_runs set status = 'pending', token = null, lease_until = null where owner = $1 and status = 'running'
