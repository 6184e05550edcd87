-- Takes hold of a subject, also of one that nobody has claimed yet, which is in its first generation. A claim that is under way
-- is waited for: its event belongs to the generation that ends. The rest of the reset is a statement of its own, whose
-- snapshot sees that event.
insert into postrider.once as o (tenant, subject, generation)
values ($1, $2, 1)
on conflict (tenant, subject) do update set generation = o.generation
