-- Whoever changes how a plan stands holds its row until the change is committed. Two tasks that end at the same moment
-- would otherwise each see the other as unfinished, and nobody would tell that the plan is complete.
select title, webhook_url, generation from rollouts.plans where id = $1 for update
