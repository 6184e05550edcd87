select title, webhook_url, generation from rollouts.plans where id = $1
