-- Once per endpoint and claim, however many tokens were taken.
insert into postrider_buckets (endpoint_id, full_at)
values (?1, ?2)
on conflict do update set full_at = excluded.full_at
