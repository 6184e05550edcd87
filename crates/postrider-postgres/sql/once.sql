-- How these subjects stand. A statement of its own, so that its snapshot is taken after the claim that lost.
select o.tenant, o.subject, o.generation, o.event_id, o.event_type, o.claimed_at
from unnest($1::text[], $2::text[]) as wanted (tenant, subject)
join postrider.once o on o.tenant = wanted.tenant and o.subject = wanted.subject
