-- Generations that are over. The current one has no end, so it stays however old it is: a subject is claimed for good.
delete from postrider_once
where (tenant, subject, generation) in (
  select tenant, subject, generation
  from postrider_once
  where ended_at is not null and ended_at < ?1
  order by ended_at
  limit ?2)
