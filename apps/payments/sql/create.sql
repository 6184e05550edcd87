-- `on conflict` rather than a look beforehand: of two clients with the same address one wins.
insert into payments.requests (address, amount_wei, webhook_url, expires_at)
values ($1, $2::text::numeric, $3, clock_timestamp() + $4 * interval '1 microsecond')
on conflict (address) do nothing
returning id, address, amount_wei::text, status, webhook_url, created_at, updated_at, expires_at
