-- Runs that are still open know of no generation: how they end is told in the one that is current then.
update rollouts.plans set generation = $2 where id = $1
