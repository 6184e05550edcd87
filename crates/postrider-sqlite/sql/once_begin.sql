-- A generation that nobody has claimed yet.
insert into postrider_once (tenant, subject, generation)
values (?1, ?2, ?3)
