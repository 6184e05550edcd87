-- Requests that lack a destination, or have one that nothing can be sent to.
select r.id, r.status, r.address, count(h.event_id) as held_changes, max(h.reason) as reason
from payments.requests r
left join payments.held_changes h on h.request_id = r.id
where r.webhook_url is null or h.event_id is not null
group by r.id
order by r.created_at, r.id
