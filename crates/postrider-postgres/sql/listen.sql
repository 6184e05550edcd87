-- Says that this process would like to be woken, for a while. Only forwards, so that two waits of one process with
-- different timeouts do not shorten each other. The clock is the real one, also in tests that freeze the store's:
-- writers compare with it.
insert into postrider.listeners (id, channel, until)
values ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')
on conflict (id, channel) do update set until = greatest(listeners.until, excluded.until)
