-- Claiming a run does not hold its plan, so whoever decides by the state of a plan's runs holds these as well. What is
-- read afterwards, by another statement, stays as it is until the end of the transaction.
select id from rollouts.task_runs where plan_id = $1 and status in ('pending', 'running') order by id for update
